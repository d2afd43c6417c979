package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
)

// subscriber measures from the call of Append to the event in the hands of a follower of the whole log, with one
// append each 5 ms, which is a busy site.
func subscriber(ctx context.Context, b *bench) (result, error) {
	s, closeStore, err := b.openStore(ctx)
	if err != nil {
		return result{}, err
	}
	defer closeStore()
	ctx, cancel := context.WithTimeout(ctx, b.period*time.Duration(b.rounds)+time.Minute)
	defer cancel()
	arrivals, failed := make(chan time.Time, 1), make(chan error, 1)
	go func() { failed <- follow(ctx, s, arrivals) }()

	var delays, own []time.Duration
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < b.period*time.Duration(b.rounds); <-tick.C {
		asked := time.Now()
		if _, err := s.Append(ctx, event.StreamOf("bench", uuid.NewString()), 0, meta(), sample); err != nil {
			return result{}, err
		}
		own = append(own, time.Since(asked))
		select {
		case arrived := <-arrivals:
			delays = append(delays, arrived.Sub(asked))
		case err := <-failed:
			return result{}, err
		}
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		return result{}, err
	}
	p50, p99 := percentiles(delays)
	own50, own99 := percentiles(own)
	return result{
		text: fmt.Sprintf("p99 %.2f ms, p50 %.2f ms; the append itself p99 %.2f ms, p50 %.2f ms (%d events)",
			milliseconds(p99), milliseconds(p50), milliseconds(own99), milliseconds(own50), len(delays)),
		kept: p99 <= 5*time.Millisecond,
	}, nil
}

// follow tells when each event of the log arrives.
func follow(ctx context.Context, s event.Store, arrivals chan<- time.Time) error {
	var after event.Position
	for {
		events, head, err := s.ReadAll(ctx, after, nil, 100)
		if err != nil {
			return err
		}
		for range events {
			arrivals <- time.Now()
		}
		if after = head; len(events) > 0 {
			continue
		}
		if err := s.Changed(ctx, after); err != nil {
			return err
		}
	}
}

func percentiles(delays []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(delays)
	return delays[len(delays)/2], delays[len(delays)*99/100]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
