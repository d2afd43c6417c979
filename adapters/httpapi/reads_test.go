package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections/history"
)

func TestListNodes(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	var newest []string
	for i := range 5 {
		in := machine(e.pool)
		in.Name, in.Labels = "rack-"+decimal(uint64(i)), map[string]string{"row": decimal(uint64(i % 2)), "kind": "gpu"}
		newest = append([]string{into[contract.Node](w.post("/v1/nodes", in).want(201)).ID}, newest...)
	}
	w.post("/v1/nodes/"+newest[0]+"/cordon", nil).want(200)
	w.post("/v1/nodes/"+newest[1]+"/maintenance", contract.Maintenance{On: true}).want(200)
	for query, want := range map[string][]string{
		"":                                    newest,
		"?state=enrolling":                    newest,
		"?state=ready,enrolling":              newest,
		"?state=ready&state=deployed":         {},
		"?cordoned=true":                      newest[:1],
		"?cordoned=false":                     newest[1:],
		"?maintenance=true":                   newest[1:2],
		"?name=rack-3":                        newest[1:2],
		"?name=rack":                          newest,
		"?label=row=1":                        {newest[1], newest[3]},
		"?label=row=1&label=kind":             {newest[1], newest[3]},
		"?label=none":                         {},
		"?pool=" + e.pool + "&site=" + e.site: newest,
		"?tenant=" + e.tenant + "&limit=100":  newest,
	} {
		if got := nodeIDs(into[contract.List[contract.Node]](w.get("/v1/nodes" + query).want(200))); !slices.Equal(got, want) {
			t.Errorf("%q: %s", query, cmp.Diff(want, got))
		}
	}
	var paged []string
	for path := "/v1/nodes?limit=2"; path != ""; {
		page := into[contract.List[contract.Node]](w.get(path).want(200))
		paged = append(paged, nodeIDs(page)...)
		if path = ""; page.Next != "" {
			path = "/v1/nodes?limit=2&cursor=" + page.Next
		}
	}
	if !slices.Equal(paged, newest) {
		t.Fatal(cmp.Diff(newest, paged))
	}
	some := w.get("/v1/nodes?limit=1&fields=provisionState,nodeId,lastError,nodeId").want(200)
	if want := `{"items":[{"nodeId":"` + newest[0] + `","provisionState":"enrolling"}],`; !strings.HasPrefix(string(some.body), want) {
		t.Fatalf("%s", some.body)
	}
}

func nodeIDs(l contract.List[contract.Node]) []string {
	ids := []string{}
	for _, n := range l.Items {
		ids = append(ids, n.ID)
	}
	return ids
}

func TestEstate(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	changed := into[contract.Pool](w.send("PUT", "/v1/pools/"+e.pool+"/policy", contract.ChangePoolPolicy{
		Policy: contract.PoolPolicy{Agent: "none", UnverifiedRelease: "allow-unverified-release"},
	}, with("If-Match", `"1"`)).want(200))
	read := w.get("/v1/pools/" + e.pool).want(200)
	if got := into[contract.Pool](read); got.Policy != changed.Policy || got.Version != 2 || read.header.Get("Etag") != `"2"` {
		t.Fatalf("%+v after %+v", got, changed)
	}
	w.send("PUT", "/v1/pools/"+e.pool+"/policy", `{"policy":{"agent":"maybe","unverifiedRelease":"x"}}`).
		issues("body.policy.agent", "body.policy.unverifiedRelease")
	site := contract.ChangeSitePolicy{Policy: contract.SitePolicy{BMCNetworks: []string{"10.0.0.0/8"}}}
	w.send("PUT", "/v1/sites/"+e.site+"/policy", site).want(200)
	w.send("PUT", "/v1/sites/"+e.site+"/policy", `{"policy":{"bmcNetworks":["10.0.0.0/8","x"]}}`).
		issues("body.policy.bmcNetworks[1]")
	in := machine(e.pool)
	in.BMC.Address = "192.168.0.1"
	w.post("/v1/nodes", in).issues("body.bmc.address")
	w.send("PUT", "/v1/tenants/"+e.tenant+"/policy", `{"policy":{"imageSigners":[{"name":"s","publicKey":"x"}]}}`).
		issues("body.policy.imageSigners[0].publicKey")
	tenant := into[contract.Tenant](w.get("/v1/tenants/" + e.tenant).want(200))
	if tenant.Name != "acme" || tenant.Version != 1 {
		t.Fatalf("%+v", tenant)
	}
	for path, least := range map[string]int{
		"/v1/tenants": 2, "/v1/sites?tenant=" + e.tenant: 1, "/v1/pools?site=" + e.site: 1, "/v1/principals": 2,
	} {
		list := into[contract.List[map[string]any]](w.get(path).want(200))
		if len(list.Items) != least {
			t.Errorf("%s: %d items", path, len(list.Items))
		}
	}
	w.post("/v1/tenants", `{"name":" x "}`).issues("body.name")
	w.post("/v1/principals", contract.NewPrincipal{Tenant: e.tenant, Name: "x", Kind: "robot"}).issues("body.kind")
	w.post("/v1/principals/"+e.principal+"/bindings", `{"actions":[],"scope":{"kind":"galaxy","id":"x"}}`).issues("body.scope.kind")
	w.post("/v1/principals/"+e.principal+"/tokens", `{"expiresInSeconds":-1}`).issues("body.expiresInSeconds")
	w.post("/v1/principals/"+e.principal+"/tokens", `{"expiresInSeconds":9223372036854775807}`).issues("body.expiresInSeconds")
}

// A copy of the log gives every hash again, and the signed head is over just those.
func TestAudit(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	got := w.get("/v1/audit/log").want(200)
	heads := map[event.Stream]history.Head{}
	lines, position := bufio.NewScanner(bytes.NewReader(got.body)), uint64(0)
	for lines.Scan() {
		var e contract.AuditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		wire := event.Wire{
			ID: must(uuid.Parse(e.ID))(t), Stream: event.Stream(e.Stream), Version: event.Version(e.Version), Type: e.Type,
			Schema: e.Schema, Data: e.Data, Meta: e.Meta,
		}
		var meta struct{ Prev event.Hash }
		if err := json.Unmarshal(e.Meta, &meta); err != nil {
			t.Fatal(err)
		}
		if wire.Hash().String() != e.Hash || meta.Prev != heads[wire.Stream].Hash || e.Position <= position {
			t.Fatalf("%+v does not follow %+v", e, heads[wire.Stream])
		}
		heads[wire.Stream], position = history.Head{Stream: wire.Stream, Version: wire.Version, Hash: wire.Hash()}, e.Position
	}
	if position != n.Position {
		t.Fatalf("the copy ends at %d, the log at %d", position, n.Position)
	}
	var sorted []history.Head
	for _, h := range heads {
		sorted = append(sorted, h)
	}
	slices.SortFunc(sorted, func(a, b history.Head) int { return strings.Compare(string(a.Stream), string(b.Stream)) })
	head := into[contract.AuditHead](w.get("/v1/audit/head").want(200))
	if !head.Dense || got.header.Get(contract.HeaderDense) != "true" || got.header.Get(contract.HeaderPosition) != decimal(position) {
		t.Fatalf("%+v, %v", head, got.header)
	}
	if head.Digest != history.Digest(sorted).String() || head.Streams != len(sorted) || head.Position != position {
		t.Fatalf("%+v", head)
	}
	if !ed25519.Verify(head.PublicKey, head.Signed, head.Signature) || !strings.Contains(string(head.Signed), head.Digest) {
		t.Fatalf("the signature over %s does not hold", head.Signed)
	}
	rest := w.get("/v1/audit/log?after=" + decimal(position-1)).want(200)
	if bytes.Count(rest.body, []byte("\n")) != 1 {
		t.Fatalf("%s", rest.body)
	}
	w.get("/v1/audit/log?after=9999").issues("query.after")
}

func TestDoctor(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	w.ahead.Store(int64(time.Hour))
	path := "/v1/doctor?minPosition=" + decimal(n.Position)
	found := into[contract.List[contract.Finding]](w.get(path, as(e.token)).want(200))
	if len(found.Items) != 1 || found.Items[0].Code != "metal-stalled" || found.Items[0].Subject != "node/"+n.ID {
		t.Fatalf("%+v", found)
	}
	w.get("/v1/doctor?limit=0").issues("query.limit")
	w.get("/v1/doctor?cursor=x").issues("query.cursor")
}

// stuck is a read model that does not get anywhere.
type stuck struct{ Waiter }

func (stuck) Position(string) event.Position { return 1 }

func (stuck) Wait(ctx context.Context, _ string, _ event.Position) error {
	return fault.New(fault.Timeout, "not yet")
}

// A verb whose read model lags is accepted all the same, and says where to look; a read that asks for it says how far it is.
func TestReadModelsThatLag(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	w.api.waiter = stuck{w.api.waiter}
	late := w.post("/v1/nodes/"+n.ID+"/cordon", nil).want(202)
	if got := into[contract.Node](late); !got.Cordoned || late.header.Get("Metal-Position") != decimal(got.Position) {
		t.Fatalf("%v %s", late.header, late.body)
	}
	p := w.get("/v1/nodes?minPosition="+decimal(n.Position)).problem(503, "UNAVAILABLE")
	if p.Details["reached"] != float64(1) {
		t.Fatalf("%+v", p)
	}
	w.post("/v1/nodes", machine(e.pool)).want(202)
	w.post("/v1/tenants", contract.NewTenant{Name: "x"}).want(202)
}

// downLog is a log that can't be reached.
type downLog struct {
	event.Store
	down *atomic.Bool
}

func (d downLog) Head(ctx context.Context) (event.Position, error) {
	if d.down.Load() {
		return 0, event.ErrUnavailable
	}
	return d.Store.Head(ctx)
}

func (d downLog) Append(ctx context.Context, s event.Stream, expect event.Version, meta event.Meta, events ...event.Event,
) (event.Position, error) {
	if d.down.Load() {
		return 0, event.ErrUnavailable
	}
	return d.Store.Append(ctx, s, expect, meta, events...)
}

func (d downLog) Read(ctx context.Context, s event.Stream, after event.Version) ([]event.Recorded, error) {
	if d.down.Load() {
		return nil, event.ErrUnavailable
	}
	return d.Store.Read(ctx, s, after)
}

func TestLogAway(t *testing.T) {
	var down atomic.Bool
	w := start(t, func(_ *world, c *Config) { c.Log = downLog{c.Log, &down} })
	n := w.enroll(w.estate("acme").pool)
	down.Store(true)
	defer down.Store(false)
	for _, r := range []*reply{
		w.post("/v1/nodes/"+n.ID+"/cordon", nil), w.get("/v1/nodes/" + n.ID + "?at=1"), w.get("/v1/audit/log"),
		w.get("/v1/events"), w.get("/readyz"),
	} {
		r.problem(503, "UNAVAILABLE")
		if r.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After in %v", r.header)
		}
	}
	w.get("/v1/nodes/" + n.ID).want(200)
	w.get("/healthz").want(200)
}

// brokenLog breaks off after its first page.
type brokenLog struct {
	event.Store
	broken *atomic.Bool
}

func (l brokenLog) ReadAll(ctx context.Context, after event.Position, types []string, limit int,
) ([]event.Recorded, event.Position, error) {
	if l.broken.Load() && after > 0 {
		return nil, after, event.ErrUnavailable
	}
	return l.Store.ReadAll(ctx, after, types, min(limit, 3))
}

// A copy that is not whole breaks off: it does not end as if it were.
func TestCopyThatBreaksOff(t *testing.T) {
	var broken atomic.Bool
	w := start(t, func(_ *world, c *Config) { c.Log = brokenLog{c.Log, &broken} })
	w.estate("acme")
	w.get("/v1/audit/log").want(200)
	broken.Store(true)
	r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+"/v1/audit/log", nil))(t)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := w.server.Client().Do(r)
	if err != nil {
		return // nothing had been sent yet
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Fatal("half a log ends as a whole one would")
	}
}
