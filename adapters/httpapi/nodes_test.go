package httpapi

import (
	"net/http"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

func TestNodeLife(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	in := machine(e.pool)
	in.Labels, in.MACs = map[string]string{"rack": "r1"}, []string{"02-00-00-00-00-0A"}
	made := w.post("/v1/nodes", in).want(http.StatusCreated)
	n := into[contract.Node](made)
	if made.header.Get("Location") != "/v1/nodes/"+n.ID || made.header.Get("Etag") != `"2"` || n.Version != 2 {
		t.Fatalf("location %q, etag %q, version %d", made.header.Get("Location"), made.header.Get("Etag"), n.Version)
	}
	if n.Provision != "enrolling" || n.MACs[0] != "02:00:00:00:00:0a" || !n.BMC.CredentialsSet {
		t.Fatalf("%+v", n)
	}
	got := w.get("/v1/nodes/" + n.ID).want(200)
	read := into[contract.Node](got)
	if read.Version != n.Version || read.Position != n.Position || got.header.Get("Etag") != `"2"` {
		t.Fatalf("read %+v after %+v", read, n)
	}
	illegal := w.post("/v1/nodes/"+n.ID+"/manage", nil).problem(http.StatusConflict, "INVALID_STATE")
	if illegal.Details["state"] != "enrolling" {
		t.Fatalf("details %v", illegal.Details)
	}
	cordoned := into[contract.Node](w.post("/v1/nodes/"+n.ID+"/cordon", contract.Reason{Reason: "disk"}).want(200))
	if !cordoned.Cordoned || cordoned.CordonReason != "disk" {
		t.Fatalf("%+v", cordoned)
	}
	w.post("/v1/nodes/"+n.ID+"/uncordon", "{}").want(200)
	w.post("/v1/nodes/"+n.ID+"/power", contract.Power{Action: "on"}).want(200)
	w.post("/v1/nodes/"+n.ID+"/maintenance", contract.Maintenance{On: true, Reason: "fan"}).want(200)
}
