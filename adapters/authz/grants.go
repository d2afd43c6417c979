package authz

import (
	"slices"
	"sync"

	"github.com/cedar-policy/cedar-go"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
)

// mostSubjects bounds the cache of compiled bindings. A subject takes a few kilobytes.
const mostSubjects = 4096

// subject is a principal as Cedar sees it: at each scope, the Grants of its bindings.
type subject struct {
	bindings []principal.Binding // that it was compiled from
	uid      cedar.EntityUID
	granted  map[cedar.EntityUID]cedar.EntityUIDSet
}

// grants caches subjects by principal. A subject is used only for the very bindings that it was compiled from.
type grants struct {
	mu       sync.RWMutex
	subjects map[id.Principal]*subject
}

func newGrants() *grants { return &grants{subjects: map[id.Principal]*subject{}} }

// of gives the actor as compiled, at once where nothing changed since the last time.
func (g *grants) of(actor commands.Actor) *subject {
	g.mu.RLock()
	s := g.subjects[actor.Principal]
	g.mu.RUnlock()
	if s != nil && s.from(actor.Bindings) {
		return s
	}
	s = newSubject(actor)
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.subjects[actor.Principal]; !known && len(g.subjects) >= mostSubjects {
		for other := range g.subjects { // any one: the order of a map is random enough
			delete(g.subjects, other)
			break
		}
	}
	g.subjects[actor.Principal] = s
	return s
}

// from reports whether the subject was compiled from these bindings.
func (s *subject) from(bindings []principal.Binding) bool {
	return slices.EqualFunc(s.bindings, bindings, func(a, b principal.Binding) bool {
		return a.Scope == b.Scope && slices.Equal(a.Actions, b.Actions)
	})
}

// newSubject spells the wildcards out.
func newSubject(actor commands.Actor) *subject {
	s := &subject{
		uid:      uid(typePrincipal, actor.Principal.String()),
		bindings: make([]principal.Binding, len(actor.Bindings)),
		granted:  make(map[cedar.EntityUID]cedar.EntityUIDSet, len(actor.Bindings)),
	}
	granted := make(map[cedar.EntityUID][]cedar.EntityUID, len(actor.Bindings))
	for i, b := range actor.Bindings {
		s.bindings[i] = principal.Binding{ID: b.ID, Actions: slices.Clone(b.Actions), Scope: b.Scope}
		scope, ok := scopeUID(b.Scope)
		if !ok {
			continue
		}
		for _, row := range principal.Actions {
			if slices.ContainsFunc(b.Actions, func(p principal.Pattern) bool { return p.Grants(row.Action) }) {
				granted[scope] = append(granted[scope], grantUID(row.Action))
			}
		}
	}
	for scope, grants := range granted {
		s.granted[scope] = cedar.NewEntityUIDSet(grants...)
	}
	return s
}

// scopeUID is false for a kind of scope that this program does not know: it grants nothing.
func scopeUID(s principal.Scope) (cedar.EntityUID, bool) {
	switch s.Kind {
	case principal.ScopeTenant:
		return uid(typeTenant, s.ID), true
	case principal.ScopeSite:
		return uid(typeSite, s.ID), true
	case principal.ScopePool:
		return uid(typePool, s.ID), true
	case principal.ScopeNode:
		return uid(typeNode, s.ID), true
	default:
		return cedar.EntityUID{}, false
	}
}
