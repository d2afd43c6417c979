package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
)

// The bounds of what is remembered of tokens. An identity is dropped at once when its principal changes; the time only
// bounds what a process that has lost the log would still believe.
const (
	identityLife   = 5 * time.Second
	mostIdentities = 10_000
)

// Identity is a caller as its token says.
type Identity struct {
	Actor  commands.Actor
	Caller authz.Caller

	mu     sync.Mutex
	scopes map[principal.Action]projections.Scope
}

// Scope is what the caller reaches for one action, compiled once.
func (i *Identity) Scope(action principal.Action) projections.Scope {
	i.mu.Lock()
	defer i.mu.Unlock()
	s, known := i.scopes[action]
	if !known {
		s = i.Caller.Scope(action)
		i.scopes[action] = s
	}
	return s
}

// tokens knows callers by the hashes of their tokens.
type tokens struct {
	db    projections.DB
	clock commands.Clock

	mu         sync.RWMutex
	known      map[string]remembered // by hash
	generation uint64                // rises whenever something is dropped
}

type remembered struct {
	who   *Identity
	until time.Time
}

func newTokens(db projections.DB, clock commands.Clock) *tokens {
	return &tokens{db: db, clock: clock, known: map[string]remembered{}}
}

// cached is the identity behind a hash, from memory; nil: it must be looked up.
func (t *tokens) cached(hash string) *Identity {
	t.mu.RLock()
	r, ok := t.known[hash]
	t.mu.RUnlock()
	if !ok || !t.clock().Before(r.until) {
		return nil
	}
	return r.who
}

// lookUp asks the read model. Errors: UNAUTHENTICATED.
func (t *tokens) lookUp(ctx context.Context, hash string) (*Identity, error) {
	t.mu.RLock()
	began := t.generation
	t.mu.RUnlock()
	now := t.clock()
	caller, err := authz.Lookup(ctx, t.db, hash, now)
	if err != nil {
		return nil, err
	}
	who := &Identity{
		Actor:  commands.Actor{Principal: caller.Principal, Bindings: caller.Bindings},
		Caller: caller, scopes: map[principal.Action]projections.Scope{},
	}
	until := now.Add(identityLife)
	if caller.ExpiresAt != nil && caller.ExpiresAt.Before(until) {
		until = *caller.ExpiresAt
	}
	t.remember(hash, remembered{who, until}, began)
	return who, nil
}

// remember keeps an identity, unless something was dropped since it was looked up: it may be older than that.
func (t *tokens) remember(hash string, r remembered, began uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation != began {
		return
	}
	if _, had := t.known[hash]; !had && len(t.known) >= mostIdentities {
		for other := range t.known { // any one: the order of a map is random enough
			delete(t.known, other)
			break
		}
	}
	t.known[hash] = r
}

// forget drops what is known of a principal.
func (t *tokens) forget(p id.Principal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generation++
	for hash, r := range t.known {
		if r.who.Actor.Principal == p {
			delete(t.known, hash)
		}
	}
}
