package httpapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

func same[T any](t *testing.T, want, got T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("it differs (-want +got):\n%s", d)
	}
}

// What a mutation answers is what a read gives later, times included.
func TestAnswersOfMutationsAreThoseOfReads(t *testing.T) {
	w := start(t)
	tenant := into[contract.Tenant](w.post("/v1/tenants", contract.NewTenant{Name: "acme"}).want(201))
	same(t, tenant, into[contract.Tenant](w.get("/v1/tenants/"+tenant.ID).want(200)))
	site := into[contract.Site](w.post("/v1/sites", contract.NewSite{Tenant: tenant.ID, Name: "lab"}).want(201))
	same(t, site, into[contract.Site](w.get("/v1/sites/"+site.ID).want(200)))
	pool := into[contract.Pool](w.post("/v1/pools",
		contract.NewPool{Tenant: tenant.ID, Site: site.ID, Name: "pool"}).want(201))
	same(t, pool, into[contract.Pool](w.get("/v1/pools/"+pool.ID).want(200)))
	who := into[contract.Principal](w.post("/v1/principals",
		contract.NewPrincipal{Tenant: tenant.ID, Name: "ann", Kind: "person"}).want(201))
	same(t, who, into[contract.Principal](w.get("/v1/principals/"+who.ID).want(200)))
	who = into[contract.Principal](w.post("/v1/principals/"+who.ID+"/disable", nil).want(200))
	same(t, who, into[contract.Principal](w.get("/v1/principals/"+who.ID).want(200)))
	node := w.enroll(pool.ID)
	node = into[contract.Node](w.post("/v1/nodes/"+node.ID+"/cordon", nil).want(200))
	same(t, node, into[contract.Node](w.get("/v1/nodes/"+node.ID).want(200)))
}
