package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
)

func TestCredentials(t *testing.T) {
	w := start(t)
	for name, set := range map[string]option{
		"none":       with("Authorization", ""),
		"no scheme":  with("Authorization", adminToken),
		"basic":      with("Authorization", "Basic "+adminToken),
		"empty":      with("Authorization", "Bearer "),
		"unknown":    as("metal_unknown"),
		"far longer": as(strings.Repeat("a", 10_000)),
		"twice":      func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+adminToken) },
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			got := w.get("/v1/nodes", set)
			got.problem(http.StatusUnauthorized, "UNAUTHENTICATED")
			if !strings.HasPrefix(got.header.Get("Www-Authenticate"), "Bearer") {
				t.Fatalf("headers %v", got.header)
			}
		})
	}
	w.t = t
	w.get("/v1/nodes", with("Authorization", "bEaReR "+adminToken)).want(200)
	none := with("Authorization", "")
	w.get("/v1/nodes?access_token="+adminToken, none).problem(http.StatusUnauthorized, "UNAUTHENTICATED")
	w.get("/v1/nodes?access_token=" + adminToken).issues("query.access_token")
	if strings.Contains(w.logs.String(), adminToken) {
		t.Fatal("the log holds a token")
	}
}

func TestTokensEnd(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	path := "/v1/principals/" + e.principal
	issued := w.post(path+"/tokens", contract.NewToken{Note: "ci", ExpiresInSeconds: 60}).want(201)
	if issued.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("headers %v", issued.header)
	}
	short := into[contract.IssuedToken](issued)
	w.get("/v1/whoami", as(short.Token)).want(200)
	w.ahead.Store(int64(61 * time.Second))
	w.get("/v1/whoami", as(short.Token)).problem(401, "UNAUTHENTICATED")
	w.ahead.Store(0)

	second := into[contract.IssuedToken](w.post(path+"/tokens", nil).want(201))
	w.get("/v1/whoami", as(second.Token)).want(200)
	w.send("DELETE", path+"/tokens/"+second.ID, nil).want(200)
	w.get("/v1/whoami", as(second.Token)).problem(401, "UNAUTHENTICATED")
	w.send("DELETE", path+"/tokens/"+second.ID, nil).problem(404, "NOT_FOUND")

	w.get("/v1/whoami", as(e.token)).want(200)
	w.post(path+"/disable", nil).want(200)
	w.get("/v1/whoami", as(e.token)).problem(401, "UNAUTHENTICATED")
	w.post(path+"/enable", nil).want(200)
	w.get("/v1/whoami", as(e.token)).want(200)

	who := into[contract.WhoAmI](w.get("/v1/whoami", as(e.token)))
	w.get("/v1/nodes/"+w.enroll(e.pool).ID, as(e.token)).want(200)
	w.send("DELETE", path+"/bindings/"+who.Bindings[0].ID, nil).want(200)
	if left := into[contract.WhoAmI](w.get("/v1/whoami", as(e.token)).want(200)); len(left.Bindings) != 0 {
		t.Fatalf("%+v", left)
	}
	seen := into[contract.Principal](w.get(path).want(200))
	if len(seen.Bindings) != 0 || len(seen.Tokens) != 2 {
		t.Fatalf("%+v", seen)
	}
}

// What another replica does to a principal is heard from the log.
func TestRevocationElsewhere(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	w.get("/v1/whoami", as(e.token)).want(200)
	other := must(New(Config{
		Service: w.service, Authorizer: w.api.authorizer, Log: w.store, DB: w.pool, Waiter: w.runner,
		Outcomes: w.outcomes, Clock: w.now, Logger: w.api.log, RequestKey: w.secrets.RequestKey(),
	}))(t)
	mine := w.server.Config.Handler
	w.server.Config.Handler = other
	w.post("/v1/principals/"+e.principal+"/disable", nil).want(200)
	w.server.Config.Handler = mine
	w.eventually("the token ends", func() bool { return w.get("/v1/whoami", as(e.token)).status == 401 })
}

func TestFailedAttemptsAreLimited(t *testing.T) {
	w := start(t)
	fixed := time.Now()
	w.api.clock = func() time.Time { return fixed }
	w.get("/v1/whoami").want(200)
	for range attemptBurst {
		w.get("/v1/whoami", as("guess")).problem(401, "UNAUTHENTICATED")
	}
	limited := w.get("/v1/whoami", as("guess"))
	limited.problem(http.StatusTooManyRequests, "RATE_LIMITED")
	if limited.header.Get("Retry-After") != "1" {
		t.Fatalf("Retry-After %q", limited.header.Get("Retry-After"))
	}
	w.get("/v1/whoami").want(200) // a known token is not a guess
	if w.seen.refusals(refusedInvalid) != attemptBurst || w.seen.refusals(refusedLimited) != 1 {
		t.Fatalf("observed %v", w.seen.refused)
	}
	if !strings.Contains(w.logs.String(), `"credential refused"`) || strings.Contains(w.logs.String(), "guess") {
		t.Fatal("the log tells nothing of refused credentials, or the credential itself")
	}
}

// Whoever guesses does not lock out others behind the same address, also not those that are not known yet.
func TestGuessesLockNobodyOut(t *testing.T) {
	w := start(t)
	fixed := time.Now()
	w.api.clock = func() time.Time { return fixed }
	token := w.estate("acme").token
	for range attemptBurst {
		w.get("/v1/whoami", as("guess")).problem(401, "UNAUTHENTICATED")
	}
	for range 6 {
		w.get("/v1/whoami", as("guess")).problem(http.StatusTooManyRequests, "RATE_LIMITED")
	}
	if w.api.tokens.cached(commands.TokenHash(token)) != nil {
		t.Fatal("the token is known already")
	}
	w.get("/v1/whoami", as(token)).want(200)
}

func TestRequestIDs(t *testing.T) {
	w := start(t)
	pool := w.estate("acme").pool
	got := w.get("/v1/nodes/x", with("X-Request-ID", "trace-1"))
	if got.header.Get("X-Request-Id") != "trace-1" || into[contract.Problem](got).RequestID != "trace-1" {
		t.Fatalf("%v %s", got.header, got.body)
	}
	for _, bad := range []string{"a b", strings.Repeat("a", 200), `"`, "-x"} {
		if id := w.get("/v1/whoami", with("X-Request-ID", bad)).header.Get("X-Request-Id"); id == bad || id == "" {
			t.Errorf("%q was taken as %q", bad, id)
		}
	}
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	n := w.enroll(pool, with("X-Request-ID", "r-7"), with("X-Correlation-ID", "c-8"), with("Traceparent", trace))
	history := into[contract.List[contract.Event]](w.get("/v1/nodes/" + n.ID + "/history?minPosition=" + decimal(n.Position)).want(200))
	if e := history.Items[0]; e.RequestID != "r-7" || e.CorrelationID != "c-8" || e.CausationID != "r-7" || len(history.Items) != 2 {
		t.Fatalf("%+v", history)
	}
}
