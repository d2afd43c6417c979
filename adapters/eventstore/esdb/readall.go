package esdb

import (
	"context"
	"math"
	"slices"
	"sync"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/better-compute/metal/domain/event"
)

// allPage is how many events of $all one request asks for. The client's reads of $all have no filter, so all come over
// the wire and are picked here.
const allPage = 1000

// scan is what one look along $all found.
type scan struct {
	found  []event.Recorded
	ours   event.Position // of the last event of ours it passed, of whatever type, or where it began
	looked event.Position // of the last event it passed
	seen   int            // how many events it passed
	atEnd  bool           // whether the log has no more
}

// ReadAll implements event.Store. It looks at Options.ScanLimit events at most. head is the position of an event of
// ours, unless that many events of others lie between two of ours.
func (s *Store) ReadAll(
	ctx context.Context, after event.Position, types []string, limit int,
) ([]event.Recorded, event.Position, error) {
	if limit <= 0 || after > math.MaxInt64 {
		return nil, after, ctx.Err()
	}
	total := scan{ours: after, looked: s.barren.skip(after)}
	for !total.atEnd && len(total.found) < limit && total.seen < s.options.ScanLimit {
		patient, cancel := s.patient(ctx)
		page, f := s.scanPage(patient, total.looked, types, limit-len(total.found))
		cancel()
		if f != nil {
			return nil, after, readError(ctx, f)
		}
		total.found = append(total.found, page.found...)
		total.ours = max(total.ours, page.ours)
		total.looked, total.atEnd, total.seen = page.looked, page.atEnd, total.seen+page.seen
	}
	if total.looked > total.ours {
		s.barren.note(total.ours, total.looked)
	}
	if len(total.found) < limit && !total.atEnd {
		return total.found, total.looked, nil
	}
	return total.found, total.ours, nil
}

// scanPage reads one page after a position. Reads of $all begin with the event at the position itself, and can't begin
// where no record is: a position past the end is one of the reasons why a server fails to read, and not an error here.
func (s *Store) scanPage(ctx context.Context, after event.Position, types []string, limit int) (scan, *failure) {
	request := func(ctx context.Context, c *client.Client) (scan, error) {
		return s.scanOnce(ctx, c, after, types, limit)
	}
	page, f := call(ctx, s.manager, s.options.CallTimeout, request)
	if f != nil && (f.kind == refused || f.kind == unclear) {
		if head, err := s.Head(ctx); err == nil && head <= after {
			return scan{looked: after, atEnd: true}, nil
		}
	}
	if f != nil && f.kind.passing() {
		return persist(ctx, s, request)
	}
	return page, f
}

func (s *Store) scanOnce(
	ctx context.Context, c *client.Client, after event.Position, types []string, limit int,
) (scan, error) {
	page := scan{looked: after, atEnd: true}
	options := client.ReadAllOptions{Direction: client.Forwards, From: from(after), RequiresLeader: true}
	r, err := c.ReadAll(ctx, options, allPage)
	if err != nil {
		return page, err
	}
	received, bad := 0, error(nil)
	err = each(r, func(e *client.RecordedEvent) bool {
		received++
		bad = s.pass(&page, e, after, types)
		page.atEnd = bad == nil && len(page.found) < limit && received < allPage
		return page.atEnd
	})
	if bad != nil {
		err = &failure{refused, bad}
	}
	return page, err
}

// pass takes one event of $all into page.
func (s *Store) pass(page *scan, e *client.RecordedEvent, after event.Position, types []string) error {
	p, err := position(e)
	if err != nil || p <= after {
		return err
	}
	page.looked = p
	page.seen++
	w, err := s.wire(e)
	if err != nil {
		return nil //nolint:nilerr // an event without our envelope is another's, and passed over
	}
	page.ours = p
	if len(types) > 0 && !slices.Contains(types, w.Type) {
		return nil
	}
	recorded, err := s.open(e, w)
	if err == nil {
		page.found = append(page.found, recorded)
	}
	return err
}

// from is where a read or a subscription of $all begins.
func from(p event.Position) client.AllPosition {
	if p == 0 {
		return client.Start{}
	}
	return client.Position{Commit: uint64(p), Prepare: uint64(p)}
}

// headPage is how many events the search for the head asks for at a time.
const headPage = 64

// Head implements event.Store. It looks back from the end of $all past what is not ours.
func (s *Store) Head(ctx context.Context) (event.Position, error) {
	floor := s.follower.knownHead()
	var back client.AllPosition = client.End{}
	for {
		patient, cancel := s.patient(ctx)
		head, next, f := s.headPage(patient, back, floor)
		cancel()
		if f != nil {
			return 0, readError(ctx, f)
		}
		if next == nil {
			return head, nil
		}
		back = next
	}
}

// headPage looks at one page backwards. next is nil when the search is over: with the head, or floor, the newest event
// of ours known before, at or below which nothing new can be.
func (s *Store) headPage(
	ctx context.Context, back client.AllPosition, floor event.Position,
) (head event.Position, next client.AllPosition, f *failure) {
	options := client.ReadAllOptions{Direction: client.Backwards, From: back, RequiresLeader: true}
	type look struct {
		head event.Position
		last *client.RecordedEvent
		seen int
	}
	l, f := persist(ctx, s, func(ctx context.Context, c *client.Client) (look, error) {
		l := look{head: floor}
		r, err := c.ReadAll(ctx, options, headPage)
		if err != nil {
			return l, err
		}
		err = each(r, func(e *client.RecordedEvent) bool {
			l.last = e
			l.seen++
			if _, err := s.wire(e); err == nil {
				l.head, l.seen = event.Position(e.Position.Commit), 0
			}
			return l.seen > 0 && l.seen < headPage && e.Position.Commit > uint64(floor)
		})
		return l, err
	})
	if f != nil || l.seen < headPage || l.last.Position.Commit <= uint64(floor) {
		return l.head, nil, f
	}
	return 0, l.last.Position, nil
}

// barren remembers one stretch of $all that holds nothing of ours, so that a reader at the end of our events does not
// look at the server's own events behind them again and again.
type barren struct {
	mu       sync.Mutex
	from, to event.Position // nothing of ours lies above from and at or below to
}

// skip is the position up to which a reader need not look.
func (b *barren) skip(after event.Position) event.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after >= b.from && after < b.to {
		return b.to
	}
	return after
}

func (b *barren) note(from, to event.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if to > b.to {
		b.from, b.to = from, to
	}
}
