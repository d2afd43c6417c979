package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// A method that a path does not have is answered with those that it has (RFC 9110, section 15.5.6).
func TestMethodsThatAreNotThere(t *testing.T) {
	w := start(t)
	for path, allow := range map[string]string{
		"/v1/nodes":                 "GET, HEAD, POST",
		"/v1/nodes/x/cordon":        "POST",
		"/v1/tenants/x/policy":      "PUT",
		"/healthz":                  "GET, HEAD",
		"/v1/principals/x/tokens/y": "DELETE",
	} {
		got := w.send("PATCH", path, nil)
		got.problem(http.StatusMethodNotAllowed, "INVALID_INPUT")
		if got.header.Get("Allow") != allow {
			t.Errorf("%s allows %q, not %q", path, got.header.Get("Allow"), allow)
		}
	}
}

// HEAD is GET without the content, also where the content would never end.
func TestHead(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	for _, path := range []string{"/v1/nodes/" + n.ID, "/v1/nodes", "/v1/audit/log", "/v1/events", "/healthz", "/docs"} {
		got := w.send("HEAD", path, nil).want(http.StatusOK)
		if len(got.body) > 0 || got.header.Get("Content-Type") == "" {
			t.Errorf("%s: %v %q", path, got.header, got.body)
		}
	}
	if got := w.send("HEAD", "/v1/nodes/"+n.ID, nil); got.header.Get("ETag") == "" {
		t.Errorf("%v", got.header)
	}
	w.send("HEAD", "/v1/nodes/x", nil).want(http.StatusBadRequest)
	w.send("HEAD", "/v1/nodes/"+n.ID+"/cordon", nil).want(http.StatusMethodNotAllowed)
}

// What is empty is not taken for what was left out.
func TestEmptyIsNotAbsent(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	w.get("/v1/nodes/" + n.ID + "?at=").issues("query.at")
	w.get("/v1/nodes/" + n.ID + "/replay?until=").issues("query.until")
	w.post("/v1/nodes/"+n.ID+"/cordon", nil, with("Idempotency-Key", "")).issues("header.Idempotency-Key")
}

func TestDeepBodies(t *testing.T) {
	w := start(t)
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	deep := w.post("/v1/nodes", nested(maxDepth+1)).issues("body")
	if !strings.Contains(deep.Issues[0].Message, "64 deep") {
		t.Errorf("%+v", deep)
	}
	w.post("/v1/nodes", nested(9_000)).issues("body")
	w.post("/v1/nodes", nested(500_000)).issues("body")
	text := w.post("/v1/nodes", `{"name":"`+strings.Repeat(`[\"`, maxDepth+1)+`"}`).issues("body.poolId", "body.bmc")
	if len(text.Issues) != 2 {
		t.Errorf("what is in a string counts: %+v", text)
	}
	allowed := w.post("/v1/nodes", nested(maxDepth)).issues("body")
	if strings.Contains(allowed.Issues[0].Message, "deep") {
		t.Errorf("%+v", allowed)
	}
}

// A list shows of principals what each of them by itself does.
func TestListedPrincipals(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	w.post("/v1/principals", contract.NewPrincipal{Tenant: e.tenant, Name: "bare", Kind: "person"}).want(201)
	listed := into[contract.List[contract.Principal]](w.get("/v1/principals?tenant=" + e.tenant).want(200))
	if len(listed.Items) != 2 {
		t.Fatalf("%+v", listed)
	}
	for _, p := range listed.Items {
		same(t, into[contract.Principal](w.get("/v1/principals/"+p.ID).want(200)), p)
		if held := p.ID == e.principal; (len(p.Tokens) == 1) != held || (len(p.Bindings) == 1) != held {
			t.Errorf("%+v", p)
		}
	}
}
