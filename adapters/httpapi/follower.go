package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections/authz"
)

// The bounds of followers.
const (
	heartbeat     = 15 * time.Second
	mostFollowers = 32 // of one principal
)

// follower writes one stream of events.
type follower struct {
	api    *API
	r      *http.Request
	who    *Identity
	filter feedFilter
	at     event.Position // everything up to here was written or is not for this follower
	live   bool           // it has caught up once: falling behind now is being too slow
	told   event.Position // the caller knows that it has seen everything up to here
	out    *sse
}

// run writes until the caller goes, is too slow, may no longer follow, or the hub stops or begins anew.
func (f *follower) run(ctx context.Context) {
	defer f.out.end()
	began := f.api.hub.after(f.at).begun
	if !f.took(f.out.begin()) {
		return
	}
	beat := time.NewTicker(f.api.heartbeat)
	defer beat.Stop()
	for ctx.Err() == nil {
		l := f.api.hub.after(f.at)
		switch {
		case !l.running, l.begun != began:
			return
		case l.missed && f.live:
			f.cutOff()
			return
		case l.missed:
			if !f.catchUp(ctx) {
				return
			}
		case l.head > f.at:
			if !f.write(ctx, l.events, l.head) || !f.live && !f.tell() {
				return
			}
			f.live = true
		default:
			if !f.live && !f.tell() {
				return
			}
			f.live = true
			select {
			case <-l.grown:
				continue
			case <-ctx.Done():
				return
			case <-beat.C:
				if !f.beat(ctx) {
					return
				}
			}
			continue
		}
		select { // a long catch-up needs heartbeats too
		case <-beat.C:
			if !f.beat(ctx) {
				return
			}
		default:
		}
	}
}

// catchUp writes one page of what the ring no longer holds. An error of the log ends the stream: its caller resumes.
func (f *follower) catchUp(ctx context.Context) bool {
	events, head, err := f.api.store.ReadAll(ctx, f.at, nil, tailPage)
	if err != nil || head == f.at {
		return false
	}
	return f.write(ctx, events, head)
}

// write sends the events that are for this follower. Once its own principal has changed, what follows is decided afresh.
func (f *follower) write(ctx context.Context, events []event.Recorded, head event.Position) bool {
	own := principal.StreamOf(f.who.Actor.Principal)
	for _, e := range events {
		if e.Stream == own && !f.renew(ctx, e.Position) {
			return false
		}
		if !f.filter.takes(e) {
			continue
		}
		if !f.took(f.out.event(e)) {
			return false
		}
	}
	if !f.took(f.out.flush()) {
		return false
	}
	f.at = head
	return true
}

// took reports whether a write went through. One that ran into its deadline is a reader that takes nothing.
func (f *follower) took(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.slow()
	}
	return err == nil
}

func (f *follower) beat(ctx context.Context) bool {
	return f.renew(ctx, 0) && f.took(f.out.heartbeat()) && f.tell()
}

// tell says how far the log was read, for a caller whose filter takes few events: nothing else shows it.
func (f *follower) tell() bool {
	if f.at <= f.told {
		return true
	}
	f.told = f.at
	return f.took(f.out.reached(f.at))
}

// renew looks the caller's token up again, once the read model has reached a position.
func (f *follower) renew(ctx context.Context, at event.Position) bool {
	if at > 0 {
		waiting, cancel := context.WithTimeout(ctx, f.api.waits.read)
		err := f.api.waiter.Wait(waiting, authz.Name, at)
		cancel()
		if err != nil {
			return false
		}
	}
	token, _ := bearerToken(f.r.Header)
	who, err := f.api.tokens.lookUp(ctx, commands.TokenHash(token))
	if err != nil {
		return false
	}
	f.who, f.filter.scope = who, eventScope(who)
	return !f.filter.scope.Empty()
}

// cutOff ends the stream of a reader that is too slow, telling it where to resume if it still takes that.
func (f *follower) cutOff() {
	f.slow()
	_ = f.out.note("lagging", map[string]string{"position": f.at.String(), "remedy": "follow again from this position"})
}

// slow tells of a reader that is cut off.
func (f *follower) slow() {
	f.api.observer.CutOff()
	f.api.log.Warn("a follower of events was too slow", "requestId", requestOf(f.r.Context()).id, "position", uint64(f.at))
}

// followers counts the streams of each principal.
type followers struct {
	mu    sync.Mutex
	count map[id.Principal]int
}

// enter takes a place. Errors: RATE_LIMITED.
func (f *followers) enter(p id.Principal) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count[p] >= mostFollowers {
		return nil, fault.New(fault.RateLimited, "a principal follows at most %d streams of events", mostFollowers).
			WithDetail(fault.RetryAfter, int(heartbeat/time.Second))
	}
	f.count[p]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.count[p]--; f.count[p] == 0 {
			delete(f.count, p)
		}
	}, nil
}

// sse writes server-sent events (WHATWG HTML, section 9.2). Each write has its own deadline.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func newSSE(w http.ResponseWriter, timeout time.Duration) *sse {
	return &sse{w: w, control: http.NewResponseController(w), timeout: timeout}
}

func (s *sse) begin() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	s.w.WriteHeader(http.StatusOK)
	if err := s.write([]byte("retry: 2000\n\n")); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	unboundBody(s.w)
	return nil
}

// end bounds the end of the stream, which the server writes.
func (s *sse) end() { _ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) }

func (s *sse) event(e event.Recorded) error {
	data, err := json.Marshal(eventOf(e))
	if err != nil {
		return err
	}
	out := make([]byte, 0, len(data)+len(e.Type)+64)
	out = append(out, "id: "...)
	out = strconv.AppendUint(out, uint64(e.Position), 10)
	out = append(append(append(out, "\nevent: "...), e.Type...), "\ndata: "...)
	return s.write(append(append(out, data...), "\n\n"...))
}

func (s *sse) note(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := s.write([]byte("event: " + name + "\ndata: " + string(text) + "\n\n")); err != nil {
		return err
	}
	return s.flush()
}

// reached is an event without data: readers keep its id as the place to resume from, and give it to nobody.
func (s *sse) reached(at event.Position) error {
	if err := s.write([]byte("id: " + at.String() + "\n\n")); err != nil {
		return err
	}
	return s.flush()
}

func (s *sse) heartbeat() error {
	if err := s.write([]byte(": heartbeat\n\n")); err != nil {
		return err
	}
	return s.flush()
}

func (s *sse) write(b []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	_, err := s.w.Write(b)
	return err
}

func (s *sse) flush() error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	return s.control.Flush()
}
