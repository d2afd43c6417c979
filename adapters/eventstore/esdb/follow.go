package esdb

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/better-compute/metal/domain/event"
)

var (
	errSilent = errors.New("the subscription does not tell of events that the log has")
	errHangs  = errors.New("the client does not return from a subscription that was ended")
)

// follower knows how far the log has grown. One subscription serves all who wait.
type follower struct {
	store *Store
	begin sync.Once

	mu     sync.Mutex
	known  event.Position // an event of ours lies here; later ones may exist
	higher chan struct{}  // closed when known rises
}

func newFollower(s *Store) *follower { return &follower{store: s, higher: make(chan struct{})} }

// Changed implements event.Store.
func (s *Store) Changed(ctx context.Context, after event.Position) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := s.follower
	f.begin.Do(f.start)
	for {
		f.mu.Lock()
		known, higher := f.known, f.higher
		f.mu.Unlock()
		if known > after {
			return nil
		}
		select {
		case <-higher:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.manager.ctx.Done():
			return unavailable(errClosed)
		}
	}
}

// advance tells that an event of ours lies at p.
func (f *follower) advance(p event.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p > f.known {
		f.known = p
		close(f.higher)
		f.higher = make(chan struct{})
	}
}

func (f *follower) knownHead() event.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// start runs the subscription until the store is closed.
func (f *follower) start() {
	m := f.store.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() == nil {
		m.work.Add(1)
		go f.run()
	}
}

// run subscribes again whenever the subscription ends, from the last position it was told. What it missed before its
// first position it learns from the head of the log.
func (f *follower) run() {
	m := f.store.manager
	defer m.work.Done()
	wait, cursor := pause(), client.AllPosition(nil)
	for m.ctx.Err() == nil {
		if cursor == nil {
			if head, err := f.store.Head(m.ctx); err == nil {
				f.advance(head)
				cursor = from(head)
			}
		}
		if cursor != nil {
			p := &pump{follower: f, cursor: cursor}
			err := p.run()
			if p.cursor != cursor || p.confirmed {
				cursor = p.cursor
				wait.Reset()
			}
			m.log.Info("event store subscription ended", "reason", err)
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-m.ctx.Done():
		}
	}
}

// pump is one subscription from its beginning to its end.
type pump struct {
	follower  *follower
	cursor    client.AllPosition // the last position it was told: an event's or a checkpoint's
	confirmed bool
	heard     atomic.Int64 // messages so far, the confirmation among them
}

// run subscribes and returns when the subscription has ended, is silent, or its client is replaced. It never waits for
// a client that hangs.
func (p *pump) run() error {
	s := p.follower.store
	patient, cancelPatient := s.patient(s.manager.ctx)
	session, err := s.manager.acquire(patient)
	cancelPatient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.manager.ctx)
	defer cancel()
	ended := make(chan error, 1)
	inner := &pump{follower: p.follower, cursor: p.cursor} // owned by the goroutine until it has ended
	go func() {
		_, err := guard(leaderOnly(ctx), session, inner.pump)
		f := fail(ctx, err)
		s.manager.release(session, f)
		ended <- f
	}()
	reason := watch(ctx, s, inner, session.gone, ended)
	cancel()
	select {
	case err = <-ended:
	case <-time.After(s.options.CallTimeout):
		s.manager.abandon(session, errHangs)
		return errors.Join(reason, errHangs)
	}
	p.cursor, p.confirmed = inner.cursor, inner.confirmed
	if reason == nil {
		reason = err
	}
	return reason
}

// pump receives until the subscription is dropped, and gives the reason.
func (p *pump) pump(ctx context.Context, c *client.Client) (struct{}, error) {
	options := client.SubscribeToAllOptions{From: p.cursor, RequiresLeader: true, Filter: p.follower.store.filter()}
	sub, err := c.SubscribeToAll(ctx, options)
	if err != nil {
		return struct{}{}, err
	}
	defer func() { _ = sub.Close() }() // never fails
	p.confirmed = true
	for {
		p.heard.Add(1)
		m := sub.Recv()
		switch {
		case m.SubscriptionDropped != nil:
			return struct{}{}, m.SubscriptionDropped.Error
		case m.EventAppeared != nil:
			e := m.EventAppeared.OriginalEvent()
			if _, err := p.follower.store.wire(e); err == nil {
				p.follower.advance(event.Position(e.Position.Commit))
			}
			p.cursor = e.Position
		case m.CheckPointReached != nil: // the server has looked this far and found nothing else
			p.cursor = *m.CheckPointReached
		}
	}
}

// filter has the server leave out what is not ours.
func (s *Store) filter() *client.SubscriptionFilter {
	if s.options.StreamPrefix == "" {
		return client.ExcludeSystemEventsFilter()
	}
	return &client.SubscriptionFilter{Type: client.StreamFilterType, Prefixes: []string{s.options.StreamPrefix}}
}

// watch returns errSilent when the subscription has told nothing for a while although the log has grown, or was not
// even confirmed; nil when it ended or its client is replaced.
func watch(ctx context.Context, s *Store, p *pump, gone <-chan struct{}, ended chan error) error {
	tick := time.NewTicker(s.options.Watch)
	defer tick.Stop()
	before := int64(0)
	for {
		select {
		case err := <-ended:
			ended <- err
			return nil
		case <-gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := p.heard.Load()
		if now == before && s.follower.behind(ctx, now > 0) {
			return errSilent
		}
		before = now
	}
}

// behind says whether the log has grown past what is known, and makes it known. An unconfirmed subscription is behind
// whatever the log holds.
func (f *follower) behind(ctx context.Context, confirmed bool) bool {
	known := f.knownHead()
	head, err := f.store.Head(ctx)
	if err == nil {
		f.advance(head)
	}
	return !confirmed || err != nil || head > known
}
