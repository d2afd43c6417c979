package authz

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
)

// The entity types of schema/policies.
const (
	typePrincipal cedar.EntityType = "Principal"
	typeAction    cedar.EntityType = "Action"
	typeTenant    cedar.EntityType = "Tenant"
	typeSite      cedar.EntityType = "Site"
	typePool      cedar.EntityType = "Pool"
	typeNode      cedar.EntityType = "Node"
	typeIAM       cedar.EntityType = "IAM"
	typeGrant     cedar.EntityType = "Grant"
)

var root = uid(typeTenant, tenant.Root.String())

func grantUID(a principal.Action) cedar.EntityUID { return uid(typeGrant, string(a)) }

// actionInfo is what a request for an action holds beside its resource, made once.
type actionInfo struct {
	action, grant cedar.EntityUID
	context       cedar.Record
	reads         bool
}

var actions = func() map[principal.Action]actionInfo {
	all := make(map[principal.Action]actionInfo, len(principal.Actions))
	for _, row := range principal.Actions {
		grant := grantUID(row.Action)
		all[row.Action] = actionInfo{
			action: uid(typeAction, string(row.Action)), grant: grant,
			context: cedar.NewRecord(cedar.RecordMap{"grant": grant}),
			reads:   strings.HasSuffix(string(row.Action), ":read"),
		}
	}
	return all
}()

func uid(t cedar.EntityType, text string) cedar.EntityUID {
	return cedar.NewEntityUID(t, cedar.String(text))
}

// place is a resource with all that contains it. The tree is flat: whatever contains it is its parent.
type place struct {
	resource cedar.EntityUID
	around   []cedar.EntityUID
}

func placeOf(on commands.Resource) place {
	around := make([]cedar.EntityUID, 0, 4)
	around = append(around, root)
	if !id.IsZero(on.Tenant) {
		around = append(around, uid(typeTenant, on.Tenant.String()))
	}
	if !id.IsZero(on.Site) {
		around = append(around, uid(typeSite, on.Site.String()))
	}
	if !id.IsZero(on.Pool) {
		around = append(around, uid(typePool, on.Pool.String()))
	}
	return place{resource: resourceUID(on), around: around}
}

func resourceUID(on commands.Resource) cedar.EntityUID {
	switch on.Kind {
	case commands.OnNode:
		return uid(typeNode, on.Node.String())
	case commands.OnPool:
		return uid(typePool, on.Pool.String())
	case commands.OnSite:
		return uid(typeSite, on.Site.String())
	case commands.OnTenant:
		return uid(typeTenant, on.Tenant.String())
	default:
		return uid(typeIAM, on.Tenant.String())
	}
}

// entities answers Cedar's look-ups for one decision.
type entities struct {
	subject  *subject
	resource cedar.Entity
}

// entitiesOf puts the resource into what is around it, and into the grant where the subject has it at the resource
// itself.
func entitiesOf(s *subject, at place, grant cedar.EntityUID) entities {
	parents := at.around
	if s.granted[at.resource].Contains(grant) {
		parents = append(slices.Clip(parents), grant)
	}
	return entities{s, cedar.Entity{UID: at.resource, Parents: cedar.NewEntityUIDSet(parents...)}}
}

// Get finds an entity: the resource, or what is around it, which is in the grants that the subject has there.
func (e entities) Get(u cedar.EntityUID) (cedar.Entity, bool) {
	if u == e.resource.UID {
		return e.resource, true
	}
	grants, ok := e.subject.granted[u]
	return cedar.Entity{UID: u, Parents: grants}, ok
}
