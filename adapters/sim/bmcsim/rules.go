package bmcsim

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Rule makes a controller go wrong for some requests. Which ones is decided by counting, never by chance.
type Rule struct {
	Path   string `json:"path,omitempty"`   // glob over the whole path: * is any text; empty: every path
	Method string `json:"method,omitempty"` // empty: every method
	Nth    int    `json:"nth,omitempty"`    // the first match that is hit, from 1; 0 is 1
	Times  int    `json:"times,omitempty"`  // how many are hit; 0: every one from Nth on
	Every  int    `json:"every,omitempty"`  // from Nth on, only each so manieth; 0: each

	Delay    Duration          `json:"delay,omitempty"`    // before anything else
	Drop     Drop              `json:"drop,omitempty"`     // the connection ends without an answer
	Status   int               `json:"status,omitempty"`   // answer this and do nothing
	Header   map[string]string `json:"header,omitempty"`   // with Status
	Body     json.RawMessage   `json:"body,omitempty"`     // with Status
	Lie      bool              `json:"lie,omitempty"`      // POST, PATCH and DELETE answer 204 and do nothing
	Truncate int               `json:"truncate,omitempty"` // so many bytes of the body are sent
}

// Drop says when a connection is dropped.
type Drop string

// The drops.
const (
	DropBefore Drop = "before" // nothing was done
	DropAfter  Drop = "after"  // it was done, and nobody is told
)

// Duration is a time.Duration written as 1s or 250ms.
type Duration time.Duration

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Rules is the faults of one controller. The zero value has none; it is safe for concurrent use.
type Rules struct {
	Sleep func(context.Context, time.Duration) error // nil: real time

	mu    sync.Mutex
	rules []*counted
	seen  int
}

type counted struct {
	Rule
	matches int
}

// Add adds a rule behind those that there are: the first that hits counts.
func (r *Rules) Add(rule Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, &counted{Rule: rule})
}

// Clear takes every rule away.
func (r *Rules) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = nil
}

// Requests tells how many requests were seen.
func (r *Rules) Requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// hit gives what happens to a request.
func (r *Rules) hit(req *http.Request) struck {
	if r == nil {
		return struck{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	found := struck{sleep: r.Sleep}
	for _, c := range r.rules {
		if !c.fits(req) {
			continue
		}
		c.matches++
		if found.rule == nil && c.due() {
			found.rule = &c.Rule
		}
	}
	return found
}

func (r *Rule) fits(req *http.Request) bool {
	return (r.Method == "" || strings.EqualFold(r.Method, req.Method)) &&
		(r.Path == "" || glob(strings.ToLower(r.Path), strings.ToLower(req.URL.Path)))
}

func (c *counted) due() bool {
	first, step := max(c.Nth, 1), max(c.Every, 1)
	since := c.matches - first
	return since >= 0 && since%step == 0 && (c.Times == 0 || since/step < c.Times)
}

// glob matches text with a pattern in which * is any text.
func glob(pattern, text string) bool {
	head, tail, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == text
	}
	if !strings.HasPrefix(text, head) {
		return false
	}
	for i := len(head); i <= len(text); i++ {
		if glob(tail, text[i:]) {
			return true
		}
	}
	return false
}

// struck is what happens to one request.
type struck struct {
	rule  *Rule
	sleep func(context.Context, time.Duration) error
}

// before delays and drops; false means that there is no answer.
func (h struck) before(w http.ResponseWriter, r *http.Request) bool {
	if h.rule == nil {
		return true
	}
	if h.rule.Delay > 0 {
		sleep := h.sleep
		if sleep == nil {
			sleep = Sleep
		}
		if sleep(r.Context(), time.Duration(h.rule.Delay)) != nil {
			return false
		}
	}
	if h.rule.Drop == DropBefore {
		cut(w)
		return false
	}
	return true
}

// instead is the answer that nothing stands behind; status 0: none.
func (h struck) instead(r *http.Request) answer {
	switch {
	case h.rule == nil:
		return answer{}
	case h.rule.Status != 0:
		return answer{status: h.rule.Status, body: h.rule.Body, header: h.rule.Header}
	case h.rule.Lie && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return empty()
	}
	return answer{}
}

// finish sends the answer, or what the rule leaves of it.
func (h struck) finish(w http.ResponseWriter, r *http.Request, a answer) {
	switch {
	case h.rule != nil && h.rule.Drop == DropAfter:
		cut(w)
	case h.rule != nil && h.rule.Truncate > 0 && len(a.body) > h.rule.Truncate:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body[:h.rule.Truncate])
		_ = http.NewResponseController(w).Flush()
		cut(w)
	default:
		a.write(w, r.Method)
	}
}

// cut ends the connection without a word.
func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
		return
	}
	panic(http.ErrAbortHandler) // HTTP/2 and recorders have nothing to hijack; the server ends the stream
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
