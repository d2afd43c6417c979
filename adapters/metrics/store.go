package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/metal/domain/event"
)

// Store counts the appends that go through it to the log behind.
func (m *Metrics) Store(log event.Store) event.Store {
	c := counted{Store: log, metrics: m}
	if r, knows := log.(event.Reacher); knows {
		return struct {
			counted
			event.Reacher
		}{c, r}
	}
	return c
}

type counted struct {
	event.Store
	metrics *Metrics
}

// Append counts one append by its outcome.
func (c counted) Append(
	ctx context.Context, s event.Stream, expect event.Version, meta event.Meta, events ...event.Event,
) (event.Position, error) {
	began := time.Now()
	position, err := c.Store.Append(ctx, s, expect, meta, events...)
	c.metrics.appendSeconds.Observe(time.Since(began).Seconds())
	c.metrics.appends.WithLabelValues(outcomeOf(err)).Inc()
	if err == nil {
		c.metrics.appendEvents.Add(float64(len(events)))
	}
	return position, err
}

func outcomeOf(err error) string {
	var conflict *event.ConflictError
	var limit *event.LimitError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &conflict):
		return "conflict"
	case errors.As(err, &limit):
		return "limit"
	case errors.Is(err, event.ErrUnknownOutcome):
		return "unknown"
	case errors.Is(err, event.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	}
	return "error"
}

// DensePositions passes on what the log behind says of its positions.
func (c counted) DensePositions() bool {
	d, ok := c.Store.(interface{ DensePositions() bool })
	return ok && d.DensePositions()
}

// ReadStored passes on to the log behind, where it tells apart what is stored and what is remembered.
func (c counted) ReadStored(
	ctx context.Context, after event.Position, limit int,
) ([]event.Recorded, event.Position, error) {
	if r, ok := c.Store.(interface {
		ReadStored(context.Context, event.Position, int) ([]event.Recorded, event.Position, error)
	}); ok {
		return r.ReadStored(ctx, after, limit)
	}
	return c.Store.ReadAll(ctx, after, nil, limit)
}
