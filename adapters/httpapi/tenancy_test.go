package httpapi

import (
	"bytes"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// TestTenantsDoNotExistForEachOther is property P12: on every route, what is another tenant's answers exactly as what is
// nowhere.
func TestTenantsDoNotExistForEachOther(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	own, other := w.enroll(mine.pool), w.enroll(theirs.pool)
	w.post("/v1/nodes/"+other.ID+"/abort", nil) // whatever it says: a finding of theirs, if it may
	binding := into[contract.Principal](w.get("/v1/principals/" + theirs.principal)).Bindings[0].ID
	token := into[contract.Principal](w.get("/v1/principals/" + theirs.principal)).Tokens[0].ID
	hidden := into[contract.Workflow](w.get("/v1/workflows/" + w.runs(other, "metal-enroll").String())).ID
	agent := w.ramdisk(other, w.discovery(other).Token).id.String()
	joining := into[contract.JoinToken](w.post("/v1/join-tokens", contract.NewJoinToken{Role: "site", Site: theirs.site}).want(201)).ID
	w.trust(theirs.tenant)
	image := into[contract.Image](w.post("/v1/images", ubuntu(theirs.tenant, "1")).want(201)).ID
	w.profile(theirs, web("hidden", 1))
	nowhere := func(id string) string { return id[:len(id)-10] + "0000000000" }

	type route struct{ method, path, body, id string }
	var routes []route
	for _, verb := range []string{
		"manage", "inspect", "provide", "undeploy", "rescue", "unrescue", "recover", "abort", "retire", "cordon", "uncordon",
	} {
		routes = append(routes, route{"POST", "/v1/nodes/~/" + verb, "", other.ID})
	}
	routes = append(routes,
		route{"POST", "/v1/nodes/~/deploy", `{"profileId":"p","profileVersion":1}`, other.ID},
		route{"POST", "/v1/nodes/~/abandon", `{"reason":"gone"}`, other.ID},
		route{"POST", "/v1/nodes/~/power", `{"action":"on"}`, other.ID},
		route{"POST", "/v1/nodes/~/maintenance", `{"on":true}`, other.ID},
		route{"GET", "/v1/nodes/~", "", other.ID},
		route{"GET", "/v1/nodes/~?at=2", "", other.ID},
		route{"GET", "/v1/nodes/~?at=" + decimal(other.Position), "", other.ID},
		route{"GET", "/v1/nodes/~?at=2020-01-01T00:00:00Z", "", other.ID},
		route{"GET", "/v1/nodes/~/history", "", other.ID},
		route{"GET", "/v1/nodes/~/replay", "", other.ID},
		route{"GET", "/v1/nodes/~/attestation", "", other.ID},
		route{"GET", "/v1/nodes/~/workflows", "", other.ID},
		route{"GET", "/v1/workflows/~", "", hidden},
		route{"POST", "/v1/workflows/~/abort", "", hidden},
		route{"POST", "/v1/workflows/~/retry", "", hidden},
		route{"POST", "/v1/workflows/~/pause", "", hidden},
		route{"POST", "/v1/workflows/~/resume", "", hidden},
		route{"GET", "/v1/workflows?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/agents/~", "", agent},
		route{"GET", "/v1/agents?site=~", "", theirs.site},
		route{"POST", "/v1/agents/~/revoke", "", agent},
		route{"GET", "/v1/join-tokens/~", "", joining},
		route{"POST", "/v1/join-tokens/~/revoke", "", joining},
		route{"GET", "/v1/join-tokens?site=~", "", theirs.site},
		route{"POST", "/v1/join-tokens", `{"role":"site","siteId":"~"}`, theirs.site},
		route{"POST", "/v1/join-tokens", `{"role":"node","poolId":"~"}`, theirs.pool},
		route{"POST", "/v1/join-tokens", `{"role":"discovery","nodeId":"~"}`, other.ID},
		route{"GET", "/v1/images/~", "", image},
		route{"POST", "/v1/images/~/withdraw", "", image},
		route{"GET", "/v1/images?tenant=~", "", theirs.tenant},
		route{"POST", "/v1/images", strings.ReplaceAll(string(must(encode(ubuntu(theirs.tenant, "2")))(t)), theirs.tenant, "~"), theirs.tenant},
		route{"GET", "/v1/profiles?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/profiles/hidden?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/profiles/metal-release?tenant=~", "", theirs.tenant},
		route{"POST", "/v1/profiles", `{"tenantId":"~","profile":` + string(web("p", 1)) + `}`, theirs.tenant},
		route{"GET", "/v1/nodes?pool=~", "", theirs.pool},
		route{"GET", "/v1/nodes?site=~", "", theirs.site},
		route{"GET", "/v1/nodes?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/pools?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/pools?site=~", "", theirs.site},
		route{"GET", "/v1/sites?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/principals?tenant=~", "", theirs.tenant},
		route{"GET", "/v1/tenants/~", "", theirs.tenant},
		route{"GET", "/v1/sites/~", "", theirs.site},
		route{"GET", "/v1/pools/~", "", theirs.pool},
		route{"GET", "/v1/principals/~", "", theirs.principal},
		route{"GET", "/v1/events?tenant=~", "", theirs.tenant},
		route{"PUT", "/v1/tenants/~/policy", `{"policy":{}}`, theirs.tenant},
		route{"PUT", "/v1/sites/~/policy", `{"policy":{}}`, theirs.site},
		route{"PUT", "/v1/pools/~/policy", `{"policy":{}}`, theirs.pool},
		route{"POST", "/v1/principals/~/disable", "", theirs.principal},
		route{"POST", "/v1/principals/~/enable", "", theirs.principal},
		route{"POST", "/v1/principals/~/tokens", "", theirs.principal},
		route{"DELETE", "/v1/principals/~/tokens/" + token, "", theirs.principal},
		route{"DELETE", "/v1/principals/~/bindings/" + binding, "", theirs.principal},
		route{"POST", "/v1/principals/~/bindings", `{"actions":["*"],"scope":{"kind":"tenant","id":"` + mine.tenant + `"}}`, theirs.principal},
		route{"POST", "/v1/principals/" + mine.principal + "/bindings", `{"actions":["*"],"scope":{"kind":"pool","id":"~"}}`, theirs.pool},
		route{"POST", "/v1/principals/" + mine.principal + "/bindings", `{"actions":["*"],"scope":{"kind":"node","id":"~"}}`, other.ID},
		route{"POST", "/v1/principals", `{"tenantId":"~","name":"x","kind":"person"}`, theirs.tenant},
		route{"POST", "/v1/sites", `{"tenantId":"~","name":"x"}`, theirs.tenant},
		route{"POST", "/v1/pools", `{"tenantId":"~","siteId":"` + mine.site + `","name":"x"}`, theirs.tenant},
		route{"POST", "/v1/pools", `{"tenantId":"` + mine.tenant + `","siteId":"~","name":"x"}`, theirs.site},
		route{"POST", "/v1/nodes", string(must(encode(machine("~")))(t)), theirs.pool},
	)
	ask := func(r route, id string) (int, string) {
		var body any
		if r.body != "" {
			body = strings.ReplaceAll(r.body, "~", id)
		}
		got := w.send(r.method, strings.ReplaceAll(r.path, "~", id), body, as(mine.token), with("X-Request-ID", "same"))
		return got.status, strings.ReplaceAll(string(got.body), id, "~")
	}
	for _, r := range routes {
		t.Run(r.method+" "+r.path, func(t *testing.T) {
			w.t = t
			status, text := ask(r, r.id)
			absentStatus, absent := ask(r, nowhere(r.id))
			if status != 404 || status != absentStatus || text != absent {
				t.Fatalf("theirs: %d %s\nnowhere: %d %s", status, text, absentStatus, absent)
			}
		})
	}
	w.t = t
	for _, list := range []string{"/v1/nodes", "/v1/tenants", "/v1/sites", "/v1/pools", "/v1/principals", "/v1/doctor", "/v1/workflows",
		"/v1/agents", "/v1/join-tokens", "/v1/images", "/v1/profiles", "/v1/steps"} {
		got := w.get(list, as(mine.token)).want(200).body
		for _, id := range []string{other.ID, theirs.tenant, theirs.site, theirs.pool, theirs.principal, hidden, agent, joining, image} {
			if bytes.Contains(got, []byte(id)) {
				t.Errorf("%s shows %s: %s", list, id, got)
			}
		}
	}
	if got := w.get("/v1/nodes?pool="+mine.pool, as(mine.token)).want(200).body; !bytes.Contains(got, []byte(own.ID)) {
		t.Fatalf("their own is missing: %s", got)
	}
	w.get("/v1/audit/log", as(mine.token)).problem(403, "FORBIDDEN")
	w.get("/v1/audit/head", as(mine.token)).problem(403, "FORBIDDEN")
}

// The address of another tenant's machine is refused without telling whose it is.
func TestConflictDoesNotTellOfOtherTenants(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	theirs.pool = into[contract.Pool](w.post("/v1/pools",
		contract.NewPool{Tenant: theirs.tenant, Site: theirs.site, Name: "p"}).want(201)).ID
	first := machine(theirs.pool)
	first.MACs = []string{"02:00:00:00:00:99"}
	held := into[contract.Node](w.post("/v1/nodes", first).want(201))
	second := machine(mine.pool)
	second.MACs = []string{"0200.0000.0099"}
	refused := w.post("/v1/nodes", second, as(mine.token))
	refused.problem(409, "CONFLICT")
	if bytes.Contains(refused.body, []byte(held.ID)) {
		t.Fatalf("%s", refused.body)
	}
	if told := w.post("/v1/nodes", second); !bytes.Contains(told.body, []byte(held.ID)) {
		t.Fatalf("the administrator is not told: %s", told.body)
	}
}

// Who may read but not act is told what it lacks.
func TestForbiddenTellsTheAction(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	_, reader := w.caller(e.tenant, "tenant", e.tenant, "compute:nodes:read")
	w.get("/v1/nodes/"+n.ID, as(reader)).want(200)
	p := w.post("/v1/nodes/"+n.ID+"/cordon", nil, as(reader)).problem(403, "FORBIDDEN")
	if p.Details["action"] != "compute:nodes:operate" {
		t.Fatalf("%+v", p)
	}
	w.get("/v1/nodes/"+n.ID+"/replay", as(reader)).problem(403, "FORBIDDEN")
	w.get("/v1/events", as(reader)).problem(403, "FORBIDDEN")
	_, narrow := w.caller(e.tenant, "node", n.ID, "*")
	w.get("/v1/nodes/"+n.ID+"/replay", as(narrow)).problem(403, "FORBIDDEN")
	w.get("/v1/pools/"+e.pool, as(narrow)).problem(404, "NOT_FOUND")
	if list := into[contract.List[contract.Node]](w.get("/v1/nodes", as(narrow)).want(200)); len(list.Items) != 1 {
		t.Fatalf("%+v", list)
	}
}
