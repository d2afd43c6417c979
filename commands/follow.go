package commands

import (
	"context"

	"github.com/better-compute/metal/domain/event"
)

// FollowerName is the follower's on the bus.
const FollowerName = "folds"

// followed is how many events are taken in at once.
const followed = 1000

type asOfKey struct{}

// AsOf gives a context for whoever was called because of the log as it was at a position: aggregates that they read need not
// be newer than that. They are taken from memory where this process has followed the log so far; otherwise, and where a
// decision comes to a refusal, the log is read. What is appended is proven by its version in any case.
func AsOf(ctx context.Context, p event.Position) context.Context {
	return context.WithValue(ctx, asOfKey{}, p)
}

// Fresh undoes AsOf: what is read is what the log holds now.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, asOfKey{}, nil) }

// remembered is a fold that is new enough for the context; false: the log is to be read. A log that is found to reach less far
// than it was followed was restored from a backup: then nothing is remembered. One that does not tell is always read.
func remembered[S any](ctx context.Context, s *Service, stream event.Stream) (loaded[S], bool) {
	p, ok := ctx.Value(asOfKey{}).(event.Position)
	log, tells := s.log.(event.Reacher)
	if !ok || !tells {
		return loaded[S]{}, false
	}
	at := s.cache.position()
	reached := log.Reached() // asked second: it grows
	if reached < at {
		s.cache.begin(reached)
		return loaded[S]{}, false
	}
	if 0 < at && at < p && p <= reached && s.Follow(ctx) != nil { // the newest events are in memory
		return loaded[S]{}, false
	}
	return level[S](s.cache, stream, p)
}

// FollowedTo is how far Follow has come.
func (s *Service) FollowedTo() event.Position { return s.cache.position() }

// Follow follows the log to its end, for AsOf. It belongs on the bus; a service whose log is not followed reads it each time. It may
// be called from several goroutines.
func (s *Service) Follow(ctx context.Context) error {
	if s.cache.position() == 0 {
		head, err := s.log.Head(ctx)
		if err != nil {
			return err
		}
		s.cache.begin(head)
	}
	for {
		at := s.cache.position()
		if !event.MayHaveMore(s.log, at) {
			return nil
		}
		events, head, err := s.log.ReadAll(ctx, at, nil, followed)
		if err != nil || head <= at {
			return err
		}
		s.cache.follow(at, events, head)
	}
}
