// Package commands is the write side: one method per verb. Each loads the aggregate from its stream, authorizes on the
// state just loaded, lets the aggregate decide, and appends with the version it has seen. It knows neither SQL nor HTTP.
//
// A verb that loses a race is decided again on the fresh state, three times at most, unless the caller named the version
// it has seen. A verb that is asked again under the same Call.Command answers with the first outcome.
package commands

import (
	"github.com/better-compute/metal/domain/event"
)

// Service applies verbs. It is safe for concurrent use; several processes may run one each over the same log.
type Service struct {
	log     event.Store
	auth    Authorizer
	secrets Secrets
	clock   Clock
	cache   *stateCache
}

// New makes the write side over a log.
func New(log event.Store, auth Authorizer, secrets Secrets, clock Clock) *Service {
	return &Service{log: log, auth: auth, secrets: secrets, clock: clock, cache: newStateCache(cachedStates)}
}
