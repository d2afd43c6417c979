package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	store "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/domain/event"
)

// happened is an event of a common size.
type happened struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Workflow string `json:"workflow"`
}

// EventType is the public name.
func (happened) EventType() string { return "bench.happened" }

var sample = happened{From: "available", To: "deploying", Workflow: "wf_01k3v9f7m4e8ts5r2q1xyz0abc"}

func meta() event.Meta {
	return event.Meta{
		Command: uuid.New(), At: time.Now(), Tenant: "tenant_01k3v9f7m4e8ts5r2q1xyz0abc", Subject: "node/node_01k3v9f7m4e8",
		Principal: "prn_01k3v9f7m4e8ts5r2q1xyz0abc", RequestID: "req_01k3v9f7m4e8ts5r2q1xyz0abc",
		CorrelationID: "01k3v9f7m4e8ts5r2q1xyz0abc",
	}
}

// openStore is a log in a fresh database.
func (b *bench) openStore(ctx context.Context) (*store.Store, func(), error) {
	registry, err := event.NewRegistry(event.Table(event.Of[happened](1, sample.EventType())))
	if err != nil {
		return nil, nil, err
	}
	pool, _, err := b.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.New(ctx, pool, registry, store.Options{})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return s, func() { s.Close(); pool.Close() }, nil
}

// appends compares appends of one event each by so many callers with pgbench of so many clients, turn by turn.
func appends(callers int, promised float64) func(context.Context, *bench) (result, error) {
	return func(ctx context.Context, b *bench) (result, error) {
		s, closeStore, err := b.openStore(ctx)
		if err != nil {
			return result{}, err
		}
		defer closeStore()
		var ratios, rates, yardsticks []float64
		for range b.rounds {
			yardstick, err := b.pgbench(ctx, callers)
			if err != nil {
				return result{}, err
			}
			rate, err := appendFor(ctx, s, callers, b.period)
			if err != nil {
				return result{}, err
			}
			ratios, rates, yardsticks = append(ratios, rate/yardstick), append(rates, rate), append(yardsticks, yardstick)
		}
		ratio := median(ratios)
		return result{
			text: fmt.Sprintf("%.2f × (%.0f/s against %.0f/s)", ratio, median(rates), median(yardsticks)),
			kept: ratio >= promised,
		}, nil
	}
}

// appendFor lets callers append one event at a time, ten to a stream, and gives the appends per second.
func appendFor(ctx context.Context, s event.Store, callers int, period time.Duration) (float64, error) {
	var done atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, callers)
	begun := time.Now()
	for range callers {
		all.Go(func() {
			for time.Since(begun) < period {
				stream := event.StreamOf("bench", uuid.NewString())
				for v := range event.Version(10) {
					if _, err := s.Append(ctx, stream, v, meta(), sample); err != nil {
						errs <- err
						return
					}
					done.Add(1)
				}
			}
		})
	}
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return float64(done.Load()) / time.Since(begun).Seconds(), err
}
