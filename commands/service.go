// Package commands is the write side: one method per verb. Each loads the aggregate from its stream, authorizes on the
// state just loaded, lets the aggregate decide, and appends with the version it has seen. It knows neither SQL nor HTTP.
//
// A verb that loses a race is decided again on the fresh state, three times at most, unless the caller named the version
// it has seen. A verb that is asked again under the same Call.Command answers with the first outcome.
package commands

import (
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
)

// Service applies verbs. It is safe for concurrent use; several processes may run one each over the same log.
type Service struct {
	log     event.Store
	auth    Authorizer
	secrets Secrets
	clock   Clock
	cache   *stateCache
	kinds   []agentcommand.Kind
	attest  Attestor
	before  Preflight // nil: nobody looks

	profiles library
}

// New makes the write side over a log. Kinds are what agents can be asked for, as agentcommand.Join gives them; none:
// agentcommand.Kinds.
func New(log event.Store, auth Authorizer, secrets Secrets, clock Clock, kinds ...agentcommand.Kind) *Service {
	if len(kinds) == 0 {
		kinds = agentcommand.Kinds
	}
	return &Service{
		log: log, auth: auth, secrets: secrets, clock: clock, cache: newStateCache(cachedStates),
		kinds: kinds, attest: SignedResults{},
	}
}

// VerifyWith replaces the check of signed results. It is called before the service is used.
func (s *Service) VerifyWith(a Attestor) *Service {
	s.attest = a
	return s
}

// LookBefore has a deploy refused that would fail for want of something. It is called before the service is used.
func (s *Service) LookBefore(p Preflight) *Service {
	s.before = p
	return s
}

// Kind gives the kind of agent command of a name.
func (s *Service) Kind(name agentcommand.KindName) (agentcommand.Kind, bool) {
	return agentcommand.Find(s.kinds, name)
}
