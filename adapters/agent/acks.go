package agent

import (
	"context"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/fault"
)

// ackAfter is how long an order may run before the gateway is told that it is in the journal. Most are done by then.
const ackAfter = 300 * time.Millisecond

// acker sends acks in batches: those that gather while one is on its way go with the next.
type acker struct {
	mu      sync.Mutex
	pending []string
	sending bool
	closed  bool
	idle    *sync.Cond
	send    func(ids []string)
}

func (k *acker) init(send func(ids []string)) { k.idle, k.send = sync.NewCond(&k.mu), send }

// close takes no more, and waits for those on their way.
func (k *acker) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for k.sending {
		k.idle.Wait()
	}
}

func (k *acker) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.pending = append(k.pending, id)
	if !k.sending {
		k.sending = true
		go k.flush()
	}
}

func (k *acker) flush() {
	for {
		k.mu.Lock()
		ids := k.pending
		k.pending = nil
		if len(ids) == 0 {
			k.sending = false
			k.idle.Broadcast()
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		k.send(ids)
	}
}

// sendAcks tries once: what the gateway does not get to know it asks again, by handing the order out again.
func (a *runner) sendAcks(ids []string) {
	err := a.link.call(a.orders, protocol.PathAck, protocol.AckRequest{BootID: a.bootID, IDs: ids}, nil, callWithin)
	if err != nil {
		a.log.Warn("ack", "orders", ids, "error", err)
	}
}

// ackFirst acks orders before anything is done, and tells which of them the gateway still wants done. It goes on until the
// gateway has answered or the orders are too old.
func (a *runner) ackFirst(all []*work) []bool {
	wanted := make([]bool, len(all))
	ids := make([]string, len(all))
	for i, w := range all {
		ids[i] = w.order.ID
	}
	err := a.ackUntil(all[0].latest(all), ids)
	for i, w := range all {
		switch {
		case err == nil:
		case len(all) > 1 && !transient(err): // one of them is over: ask for each
			if single := a.ackUntil(w.ctx, ids[i:i+1]); single != nil {
				continue
			}
		default:
			continue
		}
		a.book.ack(w.entry)
		wanted[i] = true
	}
	return wanted
}

// ackUntil acks until the gateway has answered.
func (a *runner) ackUntil(ctx context.Context, ids []string) error {
	for pause := a.pauses(); ; {
		err := a.link.call(ctx, protocol.PathAck, protocol.AckRequest{BootID: a.bootID, IDs: ids}, nil, callWithin)
		if err == nil || !transient(err) {
			return err
		}
		if ctx.Err() != nil {
			return fault.Wrap(ctx.Err(), fault.Timeout, "the gateway was away until it was too late to begin")
		}
		a.log.Warn("ack", "orders", ids, "error", err)
		pause.wait(ctx, err)
	}
}
