package agent

import (
	"context"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
)

const (
	// heartbeat is the longest that a busy agent is silent; the gateway's poll time may make it less.
	heartbeat = 5 * time.Second
	// tooSoon is a poll that came back empty before it had waited at all: something answers polls without waiting.
	tooSoon = 100 * time.Millisecond
)

// pollOnce asks for orders once and starts what it is given. An agent without room only shows that it lives, now and then,
// until it has room again.
func (a *runner) pollOnce(ctx context.Context, session protocol.SessionAnswer) error {
	wait := time.Duration(session.PollSeconds * float64(time.Second))
	if a.Boot != nil {
		wait = min(wait, leasePoll)
	}
	room := a.book.free(a.Room)
	if room == 0 {
		if a.waitForRoom(ctx, min(heartbeat, max(wait/3, time.Second))) {
			return nil
		}
		wait = 0
	}
	asked := time.Now()
	var answer protocol.PollAnswer
	err := a.link.call(ctx, protocol.PathPoll, protocol.PollRequest{
		BootID: a.bootID, WaitSeconds: wait.Seconds(), Room: room, Doing: a.book.doing(), Boot: a.Boot.offer(),
	}, &answer, wait+callWithin)
	if err != nil {
		return err
	}
	a.Heard(time.Time{})
	a.bootHeard(answer.Boot, asked)
	for _, id := range answer.Cancel {
		a.book.abandon(id)
	}
	started := a.take(answer.Orders)
	if started == 0 && wait > 0 && time.Since(asked) < tooSoon {
		sleep(ctx, tooSoon)
	}
	return nil
}

// waitForRoom waits until an order ends or ctx does, and tells whether one of them did.
func (a *runner) waitForRoom(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-a.freed:
		return true
	case <-ctx.Done():
		return true
	case <-timer.C:
		return false
	}
}

// take starts the orders that are new and answers the others from the journal. It gives how many are new.
func (a *runner) take(orders []protocol.Order) (started int) {
	var first []*work // those whose ack comes before anything is done
	for _, o := range orders {
		ctx, cancel := context.WithCancelCause(a.orders)
		e, known := a.book.take(o, cancel)
		switch known {
		case isNew:
			started++
			w := a.newWork(ctx, e)
			a.working.Add(1)
			if w.acksFirst() {
				first = append(first, w)
			} else {
				go w.run()
			}
		case isRunning: // the gateway asks whether it is in the journal
			cancel(nil)
			a.acks.add(o.ID)
		case isSettled:
			cancel(nil)
			a.answerAgain(e)
		}
	}
	if len(first) > 0 {
		go a.ackAndRun(first)
	}
	return started
}

// ackAndRun acks orders in one call, and carries out those that the gateway still wants.
func (a *runner) ackAndRun(all []*work) {
	wanted := a.ackFirst(all)
	for i, w := range all {
		switch {
		case !wanted[i]:
			w.drop()
		case i == len(all)-1:
			w.run()
		default:
			go w.run()
		}
	}
}

// answerAgain sends the first result of an order once more.
func (a *runner) answerAgain(e *entry) {
	result := a.book.first(e)
	if result == nil {
		return
	}
	a.working.Go(func() {
		if err := a.link.call(a.orders, protocol.PathResult, result, nil, callWithin); err != nil {
			a.log.Warn("result, once more", "order", result.ID, "error", err) // it is asked for again
		}
	})
}
