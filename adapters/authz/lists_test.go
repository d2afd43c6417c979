package authz_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	listing "github.com/better-compute/metal/projections/authz"
)

// What a list shows can be read by its id, and what can be read by its id is in the list.
func TestReadingAgreesWithLists(t *testing.T) {
	auth := must(authz.New())
	rapid.Check(t, func(t *rapid.T) {
		actor, on := drawActor(t), drawResource(t)
		place := projections.Place{Tenant: on.Tenant.String()}
		if !id.IsZero(on.Site) {
			place.Site = on.Site.String()
		}
		if !id.IsZero(on.Pool) {
			place.Pool = on.Pool.String()
		}
		if !id.IsZero(on.Node) {
			place.Node = on.Node.String()
		}
		for _, row := range principal.Actions {
			decided := auth.Allow(actor, row.Action, on) == nil
			if listed := listing.ScopeOf(actor.Bindings, row.Action).Reaches(place); listed != decided {
				t.Fatalf("%s on %+v with %+v: listed %t, decided %t", row.Action, on, actor.Bindings, listed, decided)
			}
		}
	})
}
