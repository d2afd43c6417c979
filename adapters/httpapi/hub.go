package httpapi

import (
	"context"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
)

// The bounds of the shared tail of the log.
const (
	ringEvents = 4096
	ringBytes  = 32 << 20 // of their data: one event may hold 256 KiB
	tailPage   = 500
	tailRetry  = time.Second
	tailRest   = 5 * time.Second // after which a tail at rest looks whether the log still reaches so far
)

// hub reads the end of the log once for every follower. It keeps the newest events in a ring; a follower takes from the
// ring at its own pace, older events from the log, and waits for growth.
type hub struct {
	store   event.Store
	renewed func(id.Principal, event.Position) (later func(context.Context))
	log     *slog.Logger
	most    int
	rest    time.Duration

	mu      sync.RWMutex
	running bool
	begun   uint64           // how often the tail began: a follower belongs to one
	events  []event.Recorded // positions rise; everything above floor and up to tail
	size    int              // of their data
	floor   event.Position
	tail    event.Position
	grown   chan struct{} // closed and replaced whenever tail or running changes
}

func newHub(store event.Store, renewed func(id.Principal, event.Position) func(context.Context), log *slog.Logger) *hub {
	return &hub{store: store, renewed: renewed, log: log, most: ringEvents, rest: tailRest, grown: make(chan struct{})}
}

// Run reads the log until ctx ends; then every follower's stream ends too. An error of the log is retried: followers wait.
func (a *API) Run(ctx context.Context) error {
	a.hub.run(ctx)
	return nil
}

func (h *hub) run(ctx context.Context) {
	h.mu.Lock()
	h.running = false
	h.mu.Unlock()
	var changes sync.WaitGroup
	defer changes.Wait()
	defer h.signal(func() { h.running = false })
	for ctx.Err() == nil {
		err := h.step(ctx, &changes)
		if err == nil || ctx.Err() != nil {
			continue
		}
		h.log.WarnContext(ctx, "the log can't be followed; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(tailRetry):
		}
	}
}

// step brings the ring up to the log, or waits for the log to grow.
func (h *hub) step(ctx context.Context, changes *sync.WaitGroup) error {
	after, running := h.position()
	if !running {
		head, err := h.store.Head(ctx)
		if err != nil {
			return err
		}
		h.signal(func() { h.running, h.events, h.size, h.floor, h.tail, h.begun = true, nil, 0, head, head, h.begun+1 })
		return nil
	}
	if log, knows := h.store.(event.Reacher); knows && log.Reached() < after {
		h.log.WarnContext(ctx, "the log ends earlier than before, as after a restored backup; followers have to begin anew", "position", after)
		h.signal(func() { h.running = false })
		return nil
	}
	if !event.MayHaveMore(h.store, after) {
		return h.changed(ctx, after)
	}
	events, head, err := h.store.ReadAll(ctx, after, nil, tailPage)
	if err != nil {
		return err
	}
	if head == after {
		return h.changed(ctx, after)
	}
	h.principals(ctx, events, changes)
	h.signal(func() { h.add(events, head) })
	return nil
}

// changed waits for the log to grow, and returns now and then all the same.
func (h *hub) changed(ctx context.Context, after event.Position) error {
	resting, cancel := context.WithTimeout(ctx, h.rest)
	defer cancel()
	err := h.store.Changed(resting, after)
	if resting.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// principals tells of changed principals before their events are shown to anyone.
func (h *hub) principals(ctx context.Context, events []event.Recorded, changes *sync.WaitGroup) {
	newest := map[id.Principal]event.Position{}
	for _, e := range events {
		if e.Stream.Category() != principal.Category {
			continue
		}
		if p, err := id.Parse[id.Principal](e.Stream.ID()); err == nil {
			newest[p] = e.Position
		}
	}
	for p, at := range newest {
		later := h.renewed(p, at)
		changes.Go(func() { later(ctx) })
	}
}

// add takes new events in. The ring holds most to twice most of them, or as much of their data, so that it is moved once for many
// batches.
func (h *hub) add(events []event.Recorded, head event.Position) {
	h.events, h.tail = append(h.events, events...), head
	for _, e := range events {
		h.size += len(e.Data)
	}
	if len(h.events) <= 2*h.most && h.size <= 2*ringBytes {
		return
	}
	first := len(h.events)
	for h.size = 0; first > 0 && len(h.events)-first < h.most; first-- {
		size := h.size + len(h.events[first-1].Data)
		if size > ringBytes {
			break
		}
		h.size = size
	}
	h.floor = h.events[first-1].Position
	h.events = append(make([]event.Recorded, 0, len(h.events)-first+tailPage), h.events[first:]...)
}

func (h *hub) signal(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.grown)
	h.grown = make(chan struct{})
}

func (h *hub) position() (event.Position, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.tail, h.running
}

// look is what the ring holds after a position.
type look struct {
	events  []event.Recorded
	head    event.Position // everything up to here is in events
	missed  bool           // the ring no longer holds what comes after the position
	running bool
	begun   uint64 // which tail it is
	grown   <-chan struct{}
}

func (h *hub) after(p event.Position) look {
	h.mu.RLock()
	defer h.mu.RUnlock()
	l := look{head: max(h.tail, p), missed: p < h.floor, running: h.running, begun: h.begun, grown: h.grown}
	if l.missed {
		return l
	}
	first := sort.Search(len(h.events), func(i int) bool { return h.events[i].Position > p })
	l.events = h.events[first:len(h.events):len(h.events)]
	return l
}
