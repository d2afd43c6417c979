package httpapi

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

func wasKept(r *reply) bool { return r.header.Get("Idempotency-Replayed") == "true" }

func TestSameKeyGivesTheFirstOutcome(t *testing.T) {
	w := start(t)
	pool := w.estate("acme").pool
	key := with("Idempotency-Key", "enroll-1")
	in := machine(pool)
	first := w.post("/v1/nodes", in, key).want(201)
	n := into[contract.Node](first)
	w.post("/v1/nodes/"+n.ID+"/cordon", nil).want(200)
	again := w.post("/v1/nodes", in, key).want(201)
	if !bytes.Equal(first.body, again.body) || !wasKept(again) || wasKept(first) {
		t.Fatalf("first %s\nagain %s %v", first.body, again.body, again.header)
	}
	for _, name := range []string{"Etag", "Metal-Position", "Location", "Content-Type"} {
		if first.header.Get(name) == "" || again.header.Get(name) != first.header.Get(name) {
			t.Errorf("%s is %q, was %q", name, again.header.Get(name), first.header.Get(name))
		}
	}
	// The same meaning in other bytes is the same request; another body, path or version is not.
	shuffled := strings.Replace(string(must(encode(in))(t)), `{"poolId"`, "{ \n\t\"poolId\" ", 1)
	if !wasKept(w.post("/v1/nodes", shuffled, key).want(201)) {
		t.Fatal("spaces make another request")
	}
	other := machine(pool)
	w.post("/v1/nodes", other, key).issues("header.Idempotency-Key")
	w.post("/v1/nodes/"+n.ID+"/cordon", nil, key).issues("header.Idempotency-Key")
	verb := with("Idempotency-Key", "v-1")
	w.post("/v1/nodes/"+n.ID+"/uncordon", nil, verb, with("If-Match", "3")).want(200)
	w.post("/v1/nodes/"+n.ID+"/uncordon", nil, verb, with("If-Match", "4")).issues("header.Idempotency-Key")
	w.post("/v1/nodes/"+n.ID+"/uncordon", nil, verb).issues("header.Idempotency-Key")
	for _, bad := range []string{" ", "a b", "é", strings.Repeat("k", 256)} {
		w.post("/v1/nodes", other, with("Idempotency-Key", bad)).issues("header.Idempotency-Key")
	}
	w.post("/v1/nodes", other, func(r *http.Request) {
		r.Header["Idempotency-Key"] = []string{"a", "b"}
	}).issues("header.Idempotency-Key")
	if list := into[contract.List[contract.Node]](w.get("/v1/nodes")); len(list.Items) != 1 {
		t.Fatalf("%d nodes", len(list.Items))
	}
}

// A key belongs to its principal.
func TestKeysOfOthers(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	key := with("Idempotency-Key", "same")
	w.post("/v1/nodes", machine(e.pool), key).want(201)
	if second := w.post("/v1/nodes", machine(e.pool), key, as(e.token)).want(201); wasKept(second) {
		t.Fatal("another principal's answer")
	}
}

// The process dies between append and answer: the answer is lost, and so is what would have been kept of it.
func TestRetryAfterACrash(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	w.outcomes.crash.Store(true)
	in, key := machine(e.pool), with("Idempotency-Key", "k1")
	first := into[contract.Node](w.post("/v1/nodes", in, key).want(201))
	cordon := with("Idempotency-Key", "k2")
	done := into[contract.Node](w.post("/v1/nodes/"+first.ID+"/cordon", nil, cordon).want(200))
	issue := with("Idempotency-Key", "k3")
	path := "/v1/principals/" + e.principal + "/tokens"
	token := into[contract.IssuedToken](w.post(path, contract.NewToken{Note: "n"}, issue).want(201))
	w.post("/v1/nodes/"+first.ID+"/uncordon", nil).want(200)
	w.outcomes.crash.Store(false)

	again := w.post("/v1/nodes", in, key).want(201)
	if got := into[contract.Node](again); got.ID != first.ID || got.Version != first.Version || wasKept(again) {
		t.Fatalf("%+v after %+v", got, first)
	}
	if got := into[contract.Node](w.post("/v1/nodes/"+first.ID+"/cordon", nil, cordon).want(200)); got.Version != done.Version {
		t.Fatalf("version %d after %d: the cordon was done twice", got.Version, done.Version)
	}
	if got := into[contract.IssuedToken](w.post(path, contract.NewToken{Note: "n"}, issue).want(201)); got.Token != token.Token {
		t.Fatal("another token")
	}
	if now := into[contract.Node](w.get("/v1/nodes/" + first.ID)); now.Cordoned || now.Version != 4 {
		t.Fatalf("%+v", now)
	}
	if !wasKept(w.post("/v1/nodes", in, key).want(201)) {
		t.Fatal("the second answer was not kept")
	}
}

// What asks the caller to come back is decided again; a verdict is kept.
func TestWhatIsKept(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	key := with("Idempotency-Key", "d")
	path := "/v1/nodes/" + n.ID
	w.post(path+"/cordon", nil, key, with("If-Match", "9")).problem(409, "CONFLICT")
	w.post(path+"/cordon", nil, key, with("If-Match", "9")).problem(409, "CONFLICT")
	manage := with("Idempotency-Key", "m")
	w.post(path+"/manage", nil, manage).problem(409, "INVALID_STATE")
	if !wasKept(w.post(path+"/manage", nil, manage)) {
		t.Fatal("a verdict was not kept")
	}
	_, reader := w.caller(e.tenant, "tenant", e.tenant, "compute:nodes:read")
	refused := w.post(path+"/cordon", nil, with("Idempotency-Key", "f"), as(reader))
	refused.problem(403, "FORBIDDEN")
	if wasKept(w.post(path+"/cordon", nil, with("Idempotency-Key", "f"), as(reader))) {
		t.Fatal("a refusal that a binding would cure was kept")
	}
}

// Many at once with one key do it once.
func TestOneKeyAtOnce(t *testing.T) {
	w := start(t)
	in := machine(w.estate("acme").pool)
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			r := w.post("/v1/nodes", in, with("Idempotency-Key", "k"))
			if r.status == 201 {
				ids[i] = into[contract.Node](r).ID
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("%q", ids)
		}
	}
}
