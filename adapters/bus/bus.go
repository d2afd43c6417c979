// Package bus tells followers of the log that it has advanced, over Watermill.
//
// A nudge carries no event, only a position: an event log wants ordered, resumable, transactional reading, which each
// follower does itself from its own checkpoint. So a nudge may be doubled, dropped or late without harm: a lost one
// costs one tick. What Watermill's router brings is the running of handlers: retry with back-off, recovery from panics,
// and draining at shutdown.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/better-compute/metal/domain/event"
)

// advanced is the topic of nudges.
const advanced = "log.advanced"

// Log is what the bus needs of event.Store.
type Log interface {
	// Changed returns nil once there may be events above after, or the context's error.
	Changed(ctx context.Context, after event.Position) error
	// Head is the position of the newest event.
	Head(ctx context.Context) (event.Position, error)
}

// Follower reads the log from a checkpoint of its own.
type Follower struct {
	Name string // unique on the bus
	// CatchUp applies everything from the checkpoint to the head of the log. It is never called twice at once. An error
	// or a panic is retried with back-off, for ever. It returns soon after its context ends.
	CatchUp func(ctx context.Context) error
	// Position is how far the follower is, from memory: it is asked at every nudge.
	Position func() event.Position
}

// Options tune a bus; the zero value is right for a control plane.
type Options struct {
	Logger *slog.Logger // nil: slog.Default
	// Tick is how often the head of the log is looked at without any nudge, at least MinTick. Zero: MinTick.
	Tick time.Duration
	// Grace is how long Run waits at shutdown for followers to return. Zero: 10 s.
	Grace time.Duration
	// FirstRetry and LastRetry bound the pause before a failed CatchUp is tried again; it doubles from the one to the
	// other. Zero: 100 ms and 30 s.
	FirstRetry, LastRetry time.Duration
	// Observe is told of every CatchUp. Nil: nobody is.
	Observe func(follower string, took time.Duration, err error)
}

// MinTick is the shortest tick: one small query a second at rest.
const MinTick = time.Second

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Tick = max(o.Tick, MinTick)
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.FirstRetry <= 0 {
		o.FirstRetry = 100 * time.Millisecond
	}
	if o.LastRetry <= 0 {
		o.LastRetry = 30 * time.Second
	}
	o.LastRetry = max(o.FirstRetry, o.LastRetry)
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	return o
}

// Bus runs followers. It runs once.
type Bus struct {
	log       Log
	options   Options
	followers []*follower
	pubsub    *gochannel.GoChannel
	router    *message.Router
}

// New makes a bus. A follower without a name or a function, and a name that stands twice, are errors.
func New(log Log, followers []Follower, o Options) (*Bus, error) {
	o = o.withDefaults()
	logger := watermill.NewSlogLoggerWithLevelMapping(o.Logger.With("component", "bus"), map[slog.Level]slog.Level{
		slog.LevelInfo: slog.LevelDebug, // what is news to Watermill is detail here
	})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: o.Grace}, logger)
	if err != nil {
		return nil, fmt.Errorf("message router: %w", err)
	}
	b := &Bus{log: log, options: o, router: router, pubsub: gochannel.NewGoChannel(gochannel.Config{}, logger)}
	retry := middleware.Retry{
		MaxRetries:      -1, // for ever: a projection that can't go on says so and waits, it never skips
		InitialInterval: o.FirstRetry, MaxInterval: o.LastRetry, Multiplier: 2, RandomizationFactor: 0.5,
		Logger: logger,
	}
	taken := map[string]bool{}
	for _, f := range followers {
		if f.Name == "" || f.CatchUp == nil || f.Position == nil || taken[f.Name] {
			return nil, fmt.Errorf("follower %q: needs a name of its own, CatchUp and Position", f.Name)
		}
		taken[f.Name] = true
		running := &follower{Follower: f, observe: o.Observe}
		b.followers = append(b.followers, running)
		// The first is the outermost. Recoverer stands inside Retry, so that a panic is an error which waits its turn
		// like any other; outside it, the message would come back at once, in a hot loop. There is no poison queue.
		router.AddConsumerHandler(f.Name, advanced, b.pubsub, running.catchUp).
			AddMiddleware(running.oneAtATime, retry.Middleware, middleware.Recoverer)
	}
	return b, nil
}

// Run follows the log until ctx ends, then waits for running followers to return. It returns nil, or an error that
// names the followers that did not return within the grace period.
func (b *Bus) Run(ctx context.Context) error {
	if len(b.followers) == 0 { // the router takes having no handlers for having lost them all
		<-ctx.Done()
		return b.pubsub.Close()
	}
	routed := make(chan error, 1)
	go func() { routed <- b.router.Run(ctx) }()
	select {
	case <-b.router.Running():
		b.nudge(ctx)
	case err := <-routed:
		return errors.Join(err, b.pubsub.Close())
	}
	// The router ends with the context; what its own draining misses, stop waits for.
	err := <-routed
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.options.Grace)
	defer cancel()
	for _, f := range b.followers {
		err = errors.Join(err, f.stop(grace))
	}
	return errors.Join(err, b.pubsub.Close())
}
