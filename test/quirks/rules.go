package quirks

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"time"
)

// Answer is what is sent back. Body is a Doc, or a string that is sent as it is; nil is none.
type Answer struct {
	Status int
	Header http.Header
	Body   any
}

// Say is an answer with a body.
func Say(status int, body any) *Answer {
	return &Answer{Status: status, Header: http.Header{}, Body: body}
}

// Problem is a Redfish error with one message.
func Problem(status int, messageID, text string, args ...string) *Answer {
	message := Doc{"MessageId": messageID, "Message": text, "Severity": "Critical"}
	if len(args) > 0 {
		message["MessageArgs"] = args
	}
	return Say(status, Doc{"error": Doc{
		"code": "Base.1.8.GeneralError", "message": "A general error has occurred. See ExtendedInfo for more information.",
		"@Message.ExtendedInfo": []any{message},
	}})
}

// With sets a header; an empty value takes it out.
func (a *Answer) With(header, value string) *Answer {
	if value == "" {
		a.Header.Del(header)
	} else {
		a.Header.Set(header, value)
	}
	return a
}

func (a *Answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header)
	w.Header().Set("OData-Version", "4.0")
	var body []byte
	switch b := a.Body.(type) {
	case string:
		body = []byte(b)
	case Doc:
		body, _ = json.Marshal(b)
	}
	if body != nil && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(body)
}

// Exchange is one request on its way through the rules.
type Exchange struct {
	*Request
	N int // which request this is of those that the present rule saw, from 1

	server  *Server
	context context.Context
	rest    []*rule
}

// Rule gives the answer to a request: its own, or what x.Next gives, changed or not.
type Rule func(x *Exchange) *Answer

type rule struct {
	method, path string
	give         Rule
	seen         int
}

// On adds a rule for the requests of a method to a path; see Requests for what fits. The newest rule is asked first.
func (s *Server) On(method, path string, give Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &rule{method: method, path: path, give: give})
}

// matching lists the rules for a request, newest first. The lock is held.
func (s *Server) matching(r *Request) (found []*rule) {
	for i := len(s.rules) - 1; i >= 0; i-- {
		if matches(s.rules[i].method, s.rules[i].path, r) {
			found = append(found, s.rules[i])
		}
	}
	return found
}

// Next asks the next rule, and after the last one the controller as it is without rules.
func (x *Exchange) Next() *Answer {
	x.server.mu.Lock()
	if len(x.rest) == 0 {
		defer x.server.mu.Unlock()
		return x.server.behave(x.Request)
	}
	next := x.rest[0]
	x.rest = x.rest[1:]
	next.seen++
	n := next.seen
	x.server.mu.Unlock()
	outer := x.N
	defer func() { x.N = outer }()
	x.N = n
	return next.give(x)
}

// Always gives a fresh copy of one answer.
func Always(a *Answer) Rule {
	return func(*Exchange) *Answer { return &Answer{Status: a.Status, Header: a.Header.Clone(), Body: a.Body} }
}

// First applies a rule to the first n requests only.
func First(n int, give Rule) Rule {
	return func(x *Exchange) *Answer {
		if x.N > n {
			return x.Next()
		}
		return give(x)
	}
}

// After lets the first n requests pass and applies a rule to those that follow.
func After(n int, give Rule) Rule {
	return func(x *Exchange) *Answer {
		if x.N <= n {
			return x.Next()
		}
		return give(x)
	}
}

// Then carries a request out and answers it in another way: the controller lies about what it did.
func Then(a *Answer) Rule {
	return func(x *Exchange) *Answer {
		x.Next()
		return Always(a)(x)
	}
}

// Lie shows a document with a change.
func Lie(change Doc) Rule {
	return func(x *Exchange) *Answer {
		a := x.Next()
		if d, ok := a.Body.(Doc); ok {
			merge(d, change)
		}
		return a
	}
}

// Drop closes the connection without an answer.
func Drop(*Exchange) *Answer { panic(http.ErrAbortHandler) }

// ThenDrop carries a request out and closes the connection without an answer.
func ThenDrop(x *Exchange) *Answer {
	x.Next()
	return Drop(x)
}

// Hang answers nothing for as long as the caller waits.
func Hang(x *Exchange) *Answer {
	select {
	case <-x.context.Done():
	case <-x.server.stop:
	}
	return Drop(x)
}

// Slow does as asked, late.
func Slow(d time.Duration) Rule {
	return func(x *Exchange) *Answer {
		if !x.wait(d) {
			return Drop(x)
		}
		return x.Next()
	}
}

// wait reports whether the caller is still there after a while.
func (x *Exchange) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.context.Done():
	case <-x.server.stop:
	}
	return false
}

// Tagged shows a document under an ETag; an empty one takes the header and the property away.
func Tagged(tag string) Rule {
	return func(x *Exchange) *Answer {
		a := x.Next().With("ETag", tag)
		if d, ok := a.Body.(Doc); ok {
			delete(d, "@odata.etag")
		}
		return a
	}
}

// Guarded refuses changes whose If-Match is not the one that is wanted; "" is a request without one.
func Guarded(status int, want ...string) Rule {
	return func(x *Exchange) *Answer {
		for _, tag := range want {
			if x.Header.Get("If-Match") == tag {
				x.Header.Del("If-Match") // what follows has tags of its own
				return x.Next()
			}
		}
		return Problem(status, "Base.1.8.PreconditionFailed", "The ETag supplied did not match the ETag of the resource.")
	}
}

// Task is an asynchronous operation: the answer to a request that begins one, and the states that its document shows,
// one per read. done is called with the read that shows the last state.
func (s *Server) Task(path string, done func(), states ...Doc) *Answer {
	read := 0
	s.Put(path, Doc{"Id": path[len(path)-1:], "Name": "Task"})
	s.On(http.MethodGet, path, func(x *Exchange) *Answer {
		a := x.Next()
		s.mu.Lock()
		read = min(read+1, len(states))
		n := read
		s.mu.Unlock()
		if n == len(states) && done != nil {
			done()
		}
		if d, ok := a.Body.(Doc); ok {
			merge(d, states[n-1])
		}
		return a
	})
	return Say(http.StatusAccepted, nil).With("Location", path)
}
