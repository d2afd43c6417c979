package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
)

const (
	// sendTimeout is when a transaction that shows no life is given up and sent again on another connection.
	sendTimeout = 10 * time.Second
	// closePatience is how long Close waits for what is under way; a transaction that has been sent may have
	// sendTimeout.
	closePatience = 5 * time.Second
)

// appender writes the log: on one goroutine of its own, which gathers what callers ask at once, or on that of a caller who
// is alone. One of them writes at a time.
type appender struct {
	config    *pgx.ConnConfig
	queue     *queue
	committed func(added []*recentEvent)
	lost      func() // the connection was lost

	end   context.CancelFunc
	ended sync.WaitGroup

	writing sync.Mutex // held by whoever writes: it guards what is below
	conn    *pgx.Conn
	delays  *backoff.ExponentialBackOff
}

func startAppender(
	config *pgx.ConnConfig, q *queue, committed func([]*recentEvent), lost func(),
) *appender {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = 10*time.Millisecond, time.Second
	ctx, end := context.WithCancel(context.Background())
	a := &appender{config: config.Copy(), queue: q, committed: committed, lost: lost, end: end, delays: delays}
	a.ended.Go(func() {
		for range q.ready {
			if !a.turn(ctx) {
				return
			}
		}
	})
	return a
}

// turn appends the batch that is due, and tells whether there may be another. The last turn ends the connection.
func (a *appender) turn(ctx context.Context) (more bool) {
	a.writing.Lock()
	defer a.writing.Unlock()
	batch, ended := a.queue.take()
	if len(batch) > 0 {
		a.commit(ctx, batch)
		return true
	}
	if ended {
		a.disconnect()
	}
	return !ended
}

// close lets the appends finish that have been taken in, and gives up on them after a while.
func (a *appender) close() {
	a.queue.close()
	impatience := time.AfterFunc(closePatience, a.end)
	a.ended.Wait()
	impatience.Stop()
	a.end()
}

// commit appends a batch, as often as the connection is lost: the ids are the same each time, so that what was added
// by an attempt whose answer got lost is found, not added again. Callers wait as long as their contexts let them.
func (a *appender) commit(ctx context.Context, batch []*pending) {
	for {
		err := a.connect(ctx)
		if err == nil {
			batch = claimed(batch)
			if len(batch) == 0 {
				return
			}
			if err = a.patience(); err == nil {
				err = a.try(batch)
			}
		}
		switch {
		case err == nil:
			a.delays.Reset()
			return
		case ctx.Err() != nil:
			giveUp(batch)
			return
		case !pg.IsAway(err):
			a.refused(ctx, batch, err)
			return
		}
		a.disconnect()
		a.lost()
		if batch = living(batch); len(batch) == 0 {
			return
		}
		wait(ctx, a.delays.NextBackOff())
	}
}

// refused handles an error of the database itself, by which the whole transaction was undone. One bad append must not
// fail its neighbours, so each is tried alone.
func (a *appender) refused(ctx context.Context, batch []*pending, err error) {
	if len(batch) > 1 {
		for _, p := range batch {
			a.commit(ctx, []*pending{p})
		}
		return
	}
	p := batch[0]
	if !isTakenID(err) {
		p.fail(err)
		return
	}
	actual, err := a.version(ctx, p.stream)
	if err != nil {
		p.fail(err)
		return
	}
	p.refuse(&event.ConflictError{Stream: p.stream, Expected: p.expect, Actual: actual})
}

// giveUp answers what Close could not wait for.
func giveUp(batch []*pending) {
	for _, p := range batch {
		p.lost = p.lost || p.state.Load() == sent
		p.fail(errClosed)
	}
}

// claimed leaves out the appends whose callers have gone.
func claimed(batch []*pending) []*pending {
	return slices.DeleteFunc(batch, func(p *pending) bool { return !p.claim() })
}

// living leaves them out too, without marking the others as sent.
func living(batch []*pending) []*pending {
	return slices.DeleteFunc(batch, func(p *pending) bool { return p.state.Load() == abandoned })
}

// connect makes the writer's connection where there is none.
func (a *appender) connect(ctx context.Context) error {
	if a.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, a.config)
	if err != nil {
		return err
	}
	if err := prepare(ctx, conn); err != nil {
		_ = conn.Close(ctx) // the error that counts is the first
		return err
	}
	a.conn = conn
	return nil
}

func (a *appender) disconnect() {
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = a.conn.Close(ctx) // it may be broken
	a.conn = nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
