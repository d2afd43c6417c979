package authz_test

import (
	"fmt"
	"testing"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
)

// The figure to hold is 10 µs a decision, with one binding as with many.
func BenchmarkAllow(b *testing.B) {
	auth := must(authz.New())
	for _, bindings := range []int{1, 20, principal.MaxBindings} {
		b.Run(fmt.Sprintf("bindings=%d", bindings), func(b *testing.B) {
			actor := actorWith()
			for _, n := range few[id.Node](bindings) {
				actor.Bindings = append(actor.Bindings,
					bound(principal.Scope{Kind: principal.ScopeNode, ID: n.String()}, "compute:nodes:*"))
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := auth.Allow(actor, principal.NodesPower, onNode); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
