package authz

import (
	"slices"

	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
)

// ScopeOf compiles what bindings reach for one action. A binding on the root tenant reaches everything.
func ScopeOf(bindings []principal.Binding, action principal.Action) projections.Scope {
	var s projections.Scope
	for _, b := range bindings {
		if !slices.ContainsFunc(b.Actions, func(p principal.Pattern) bool { return p.Grants(action) }) {
			continue
		}
		switch b.Scope.Kind {
		case principal.ScopeTenant:
			if b.Scope.ID == tenant.Root.String() {
				return projections.Everything
			}
			s.Tenants = append(s.Tenants, b.Scope.ID)
		case principal.ScopeSite:
			s.Sites = append(s.Sites, b.Scope.ID)
		case principal.ScopePool:
			s.Pools = append(s.Pools, b.Scope.ID)
		case principal.ScopeNode:
			s.Nodes = append(s.Nodes, b.Scope.ID)
		}
	}
	return s
}
