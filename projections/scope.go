package projections

import "slices"

// Scope is what a caller may see for one action, compiled from its bindings. The zero Scope sees nothing.
type Scope struct {
	All     bool     // every tenant
	Tenants []string // and everything in them
	Sites   []string // and the pools and nodes at them
	Pools   []string // and the nodes in them
	Nodes   []string
}

// Place says where a resource is: its own id and those around it, as far as it has them. A tenant's Place has only a
// Tenant, a site's a Tenant and a Site, a pool's all but a Node.
type Place struct{ Tenant, Site, Pool, Node string }

// Everything is the scope without bounds.
var Everything = Scope{All: true}

// Empty reports whether the scope reaches nothing at all.
func (s Scope) Empty() bool {
	return !s.All && len(s.Tenants)+len(s.Sites)+len(s.Pools)+len(s.Nodes) == 0
}

// Public is the audience of what every tenant sees.
const Public = "public"

// OrPublic is the scope and what is Public. One that sees nothing does not see that either.
func (s Scope) OrPublic() Scope {
	if !s.All && !s.Empty() {
		s.Tenants = append(slices.Clip(s.Tenants), Public)
	}
	return s
}

// Reaches reports whether the scope covers the resource at p.
func (s Scope) Reaches(p Place) bool {
	return s.All || in(s.Tenants, p.Tenant) || in(s.Sites, p.Site) || in(s.Pools, p.Pool) || in(s.Nodes, p.Node)
}

func in(ids []string, id string) bool { return id != "" && slices.Contains(ids, id) }
