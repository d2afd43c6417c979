package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

var opFollow = get("/v1/events", "tenant", "subject", "node", "type")

// Feed says which events to follow. Every field that is set must match.
type Feed struct {
	After   *uint64 // the position to start behind; nil: only what happens from now on
	Until   uint64  // the last position to give; 0: without end
	Tenant  string
	Subject string   // such as node/node_01k…
	Node    string   // a machine's id: its own events, and those of its workflows and agent commands
	Types   []string // any of them; node.* for all that begin so
}

// Follow gives events as they happen. A connection that breaks or falls silent is made anew after the last event that
// was given, so that none is missed and none given twice. It ends with ctx, or after an error that would not go away: a
// credential that is not accepted, a request that is not valid.
func (c *Client) Follow(ctx context.Context, f Feed, o ...Option) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		after, err := c.start(ctx, f, o)
		if err != nil {
			yield(contract.Event{}, err)
			return
		}
		s := &feed{client: c, filter: f, options: o, last: strconv.FormatUint(after, 10)}
		for ctx.Err() == nil {
			err := s.once(ctx, func(e contract.Event) bool { return yield(e, nil) })
			switch {
			case errors.Is(err, errStopped), ctx.Err() != nil:
				return
			case !again(err):
				yield(contract.Event{}, err)
				return
			}
			s.failures++
			if waitFor(ctx, c.pause(min(s.failures, mostFailures), askedPause(err))) != nil {
				return
			}
		}
	}
}

// start is where a follower begins. One that wants only what is new needs a place to resume from before the first
// event.
func (c *Client) start(ctx context.Context, f Feed, o []Option) (uint64, error) {
	if f.After != nil {
		return *f.After, nil
	}
	return c.Position(ctx, o...)
}

// mostFailures stops the growth of the pause between connections.
const mostFailures = 8

var errStopped = errors.New("the follower wants no more")

// feed is one follower over its connections.
type feed struct {
	client   *Client
	filter   Feed
	options  []Option
	last     string // id of the last event given, or where to start
	failures int    // connections in a row that gave nothing
}

// once follows over one connection, until it ends.
func (s *feed) once(ctx context.Context, take func(contract.Event) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(s.client.silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	res, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // a stream is over when it is left
	err = readSSE(res.Body, func() { watchdog.Reset(s.client.silence) }, func(e sseEvent) error { return s.take(e, take) })
	if errors.Is(err, errStopped) || fault.CodeOf(err) != fault.Internal {
		return err
	}
	return s.client.unreachable(err)
}

var errSilent = errors.New("nothing came, not even a heartbeat")

// lagging is the event by which the control plane tells a follower that was too slow where to go on.
const lagging = "lagging"

func (s *feed) take(e sseEvent, give func(contract.Event) bool) error {
	switch {
	case e.kind == lagging:
		return fault.New(fault.Unavailable, "the feed of events was read too slowly")
	case len(e.data) == 0:
		s.last = e.id
		position, _ := strconv.ParseUint(e.id, 10, 64)
		return s.after(position)
	}
	var event contract.Event
	if err := json.Unmarshal(e.data, &event); err != nil {
		return fault.Wrap(err, fault.InvalidInput, "an event of the feed cannot be read: %s", err)
	}
	s.failures = 0
	if e.id != "" {
		s.last = e.id
	}
	if until := s.filter.Until; until > 0 && event.Position > until || !give(event) {
		return errStopped
	}
	return s.after(event.Position)
}

// after stops a follower that has seen all that it wants once the log was read up to a position.
func (s *feed) after(position uint64) error {
	if s.filter.Until > 0 && position >= s.filter.Until {
		return errStopped
	}
	return nil
}

func (s *feed) connect(ctx context.Context) (*http.Response, error) {
	q := given("tenant", s.filter.Tenant, "subject", s.filter.Subject, "node", s.filter.Node)
	set(q, "type", strings.Join(s.filter.Types, ","))
	options := append([]Option{func(m *message) { m.header.Set("Accept", "text/event-stream") }}, s.options...)
	options = append(options, func(m *message) { m.header.Set("Last-Event-ID", s.last) })
	return s.client.open(ctx, opFollow, nil, q, options)
}

// open starts an answer that is read bit by bit. The caller closes its body.
func (c *Client) open(ctx context.Context, op operation, parameters []string, q url.Values, options []Option,
) (*http.Response, error) {
	m, err := c.message(op, parameters, q, nil, options)
	if err != nil {
		return nil, err
	}
	r, err := c.request(ctx, m)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if res.StatusCode >= 300 {
		defer func() { _ = res.Body.Close() }() // its problem was read
		return nil, problemOf(res)
	}
	return res, nil
}
