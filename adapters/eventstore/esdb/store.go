package esdb

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// Store is event.Store on a cluster. Close it when done.
type Store struct {
	registry *event.Registry
	options  Options
	manager  *manager
	hashes   *hashes
	barren   barren
	follower *follower
}

var _ event.Store = (*Store)(nil)

// New connects to the cluster that connection names (esdb://… or esdb+discover://…) and reads the head of its log, so
// that wrong credentials show at once. Errors: INVALID_CONFIG (every issue of the connection string, never its text),
// UNAVAILABLE (no leader found before ctx or the patience of o ended), FORBIDDEN (the user may not read $all).
func New(ctx context.Context, connection string, registry *event.Registry, o Options) (*Store, error) {
	config, err := parse(connection)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if config.Username != "" && config.DisableTLS {
		o.Logger.Warn("the event store's client sends no credentials without TLS")
	}
	s := &Store{registry: registry, options: o, manager: newManager(config, o.Logger), hashes: newHashes()}
	s.follower = newFollower(s)
	if _, err := s.Head(ctx); err != nil {
		s.Close()
		return nil, unreachable(err)
	}
	return s, nil
}

func unreachable(err error) error {
	var f *failure
	if errors.As(err, &f) && f.kind == refused {
		return fault.Wrap(err, fault.Forbidden, "the event store refuses to show its log").
			WithRemedy("check the user and the password of the connection string, and that the user may read $all")
	}
	return fault.Wrap(err, fault.Unavailable, "no leader of the event store can be reached").
		WithRemedy("check the hosts and the TLS settings of the connection string, and that the cluster has a leader")
}

// closePatience bounds Close.
const closePatience = 5 * time.Second

// Close ends every call and the subscription, and closes the client. It may be called more than once.
func (s *Store) Close() {
	s.manager.close(closePatience)
}

// patient bounds a call by the store's patience.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.options.Patience, errPatience)
}

// readError is what a reader is told: the end of its own context as such.
func readError(ctx context.Context, f *failure) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.kind == refused {
		return f
	}
	return unavailable(f)
}
