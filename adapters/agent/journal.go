package agent

import (
	"context"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
)

// journal knows every order that this boot was given, so that none is carried out twice and a repeat is answered with the
// first result. It is in memory: another boot is never given the order again.
type journal struct {
	mu      sync.Mutex
	entries map[string]*entry
	settled []*entry // delivered, oldest first
	running int
}

// entry is one order.
type entry struct {
	order  protocol.Order
	cancel context.CancelCauseFunc

	acked     bool
	result    *protocol.ResultRequest // nil: it runs, or nothing is told of it
	delivered bool                    // the gateway has the result, or wants none
}

// keepResults is how many delivered results are kept for repeats. A repeat of an older one is of an order that the gateway
// has the result of.
const keepResults = 512

func newJournal() *journal { return &journal{entries: map[string]*entry{}} }

// standing is what the journal knows of an order that was handed out.
type standing int

const (
	isNew     standing = iota
	isRunning          // also: its result is on its way
	isSettled          // the gateway had the result
)

// take enters a new order, or tells how a known one stands.
func (j *journal) take(o protocol.Order, cancel context.CancelCauseFunc) (*entry, standing) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.entries[o.ID]; e != nil {
		if e.delivered {
			return e, isSettled
		}
		return e, isRunning
	}
	e := &entry{order: o, cancel: cancel}
	j.entries[o.ID] = e
	j.running++
	return e, isNew
}

// settle ends an order: the gateway has its result or wants none. What can't be repeated any more is forgotten.
func (j *journal) settle(e *entry, result *protocol.ResultRequest, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.result, e.delivered = result, true
	e.order.Payload = nil
	j.running--
	j.settled = append(j.settled, e)
	if old := len(j.settled) - 1 - keepResults; old >= 0 {
		j.settled[old].result = nil
	}
	for len(j.settled) > keepResults && j.settled[0].order.NotAfter.Before(now) {
		delete(j.entries, j.settled[0].order.ID)
		j.settled = j.settled[1:]
	}
}

// doing lists the orders that run.
func (j *journal) doing() (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running == 0 {
		return nil
	}
	for id, e := range j.entries {
		if !e.delivered {
			ids = append(ids, id)
		}
	}
	return ids
}

// free is how many more orders fit into room.
func (j *journal) free(room int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(room-j.running, 0)
}

// abandon breaks off an order that is over for the gateway.
func (j *journal) abandon(id string) {
	j.mu.Lock()
	e := j.entries[id]
	j.mu.Unlock()
	if e != nil {
		e.cancel(errCancelled)
	}
}

// ack marks an order as acked, and tells whether it was not yet.
func (j *journal) ack(e *entry) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	was := e.acked
	e.acked = true
	return !was && !e.delivered
}

// first is the result of a settled order, where it is still kept.
func (j *journal) first(e *entry) *protocol.ResultRequest {
	j.mu.Lock()
	defer j.mu.Unlock()
	return e.result
}
