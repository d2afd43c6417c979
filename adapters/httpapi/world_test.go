package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	cedar "github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/processmanagers/steps"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/images"
	"github.com/better-compute/metal/projections/jointokens"
	"github.com/better-compute/metal/projections/metalview"
	"github.com/better-compute/metal/projections/profiles"
	"github.com/better-compute/metal/projections/workflowview"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what should be there soon, on a busy computer.
const patience = time.Minute

// adminToken is the first administrator's in every test.
const adminToken = "metal_0123456789abcdef0123456789abcdef0123456789abcdef"

// world is a control plane on a real database, behind a real server.
type world struct {
	t        testing.TB
	api      *API
	service  *commands.Service
	store    event.Store
	pool     *pgxpool.Pool
	runner   *projections.Runner
	secrets  *postgres.Secrets
	outcomes *outcomesPort
	server   *httptest.Server
	logs     *buffer
	seen     *observed
	ahead    atomic.Int64 // how far the clock is before the real one, in nanoseconds
	stop     func()
	stopFeed func()
}

// setup changes a world before it starts.
type setup func(*world, *Config)

func start(t testing.TB, change ...setup) *world {
	t.Helper()
	registry := must(commands.Registry())(t)
	w := &world{t: t, pool: pgtest.New(t), store: memory.New(registry), logs: &buffer{}, seen: &observed{}}
	key := must(postgres.MasterKeySource{Value: "6b6f2a4f0d1c4e7f8a9b0c1d2e3f405162738495a6b7c8d9eafb0c1d2e3f4051"}.Load())(t)
	w.secrets = must(postgres.NewSecrets(t.Context(), w.pool, key))(t)
	w.outcomes = &outcomesPort{Outcomes: postgres.NewOutcomes(w.pool, w.secrets)}
	policies := must(cedar.New())(t)
	cfg := Config{
		Authorizer: policies, Log: w.store, DB: w.pool, Outcomes: w.outcomes, Signer: w.secrets, Clock: w.now,
		Logger: slog.New(slog.NewJSONHandler(w.logs, nil)), Version: "test", Observer: w.seen,
		RequestKey: w.secrets.RequestKey(), Gateway: Gateway{URL: "https://gateway.example:8444", CASHA256: strings.Repeat("ca", 32)},
	}
	catalog := must(steps.NewCatalog(agentcommand.Kinds, steps.Shipped()))(t)
	cfg.Steps = catalog.Specs()
	for _, c := range change {
		c(w, &cfg)
	}
	w.store = cfg.Log
	cfg.Service = commands.New(cfg.Log, cfg.Authorizer, w.secrets, w.now)
	w.service = cfg.Service
	if err := w.service.UseProfiles(catalog, must(builtin.Profiles())(t), map[string]commands.HardwareProfile{
		"dell-r760": {"power": "ipmi"},
	}); err != nil {
		t.Fatal(err)
	}
	w.runner = must(projections.NewRunner(w.pool, cfg.Log, authz.New(), metalview.New(), history.New(), doctor.New(),
		agents.New(), workflowview.New(), jointokens.New(), images.New(), profiles.New()))(t)
	cfg.Waiter, cfg.Projections = w.runner, w.runner.Names()
	w.api = must(New(cfg))(t)
	w.api.waits = waits{verb: patience, read: patience, head: patience} // what is late here is no case of its own
	w.run()
	return w
}

// run starts everything that runs beside the server, and stops it with the test.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	feed, stopFeed := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, name := range w.runner.Names() {
		running.Go(func() {
			for ctx.Err() == nil {
				if w.runner.CatchUp(ctx, name) == nil {
					_ = w.store.Changed(ctx, w.runner.Position(name))
				}
			}
		})
	}
	running.Go(func() { _ = w.api.Run(feed) })
	w.server = httptest.NewUnstartedServer(w.api)
	w.server.Config.ErrorLog = slog.NewLogLogger(slog.NewJSONHandler(w.logs, nil), slog.LevelError)
	w.server.StartTLS()
	w.server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	w.stopFeed = stopFeed
	w.stop = sync.OnceFunc(func() {
		stopFeed()
		w.server.Close()
		cancel()
		running.Wait()
	})
	w.t.Cleanup(w.stop)
	if _, err := w.service.Bootstrap(ctx); err != nil {
		w.t.Fatal(err)
	}
	if err := w.service.GiveAdministratorToken(ctx, adminToken, "test"); err != nil {
		w.t.Fatal(err)
	}
	head := must(w.store.Head(ctx))(w.t)
	waiting, done := context.WithTimeout(ctx, patience)
	defer done()
	for _, name := range w.runner.Names() {
		if err := w.runner.Wait(waiting, name, head); err != nil {
			w.t.Fatal(err)
		}
	}
	w.eventually("the feed runs", func() bool { _, running := w.api.hub.position(); return running })
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// eventually waits for a condition.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			w.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// reply is an answer, read whole.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// option changes a request before it is sent.
type option func(*http.Request)

func as(token string) option {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func with(name, value string) option {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func (w *world) get(path string, o ...option) *reply {
	w.t.Helper()
	return w.send("GET", path, nil, o...)
}

func (w *world) post(path string, body any, o ...option) *reply {
	w.t.Helper()
	return w.send("POST", path, body, o...)
}

// send sends a request as the administrator, unless an option says otherwise. A body that is no string is JSON.
func (w *world) send(method, path string, body any, o ...option) *reply {
	w.t.Helper()
	var content io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(body)
	default:
		content = bytes.NewReader(must(json.Marshal(body))(w.t))
	}
	r := must(http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, content))(w.t)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, set := range o {
		set(r)
	}
	res, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	return &reply{w.t, res.StatusCode, res.Header, must(io.ReadAll(res.Body))(w.t)}
}

// want checks the status.
func (r *reply) want(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

// problem checks that the answer is a whole problem of a code and gives it.
func (r *reply) problem(status int, code string) contract.Problem {
	r.t.Helper()
	r.want(status)
	if got := r.header.Get("Content-Type"); got != contract.ProblemType {
		r.t.Fatalf("content type %q of %s", got, r.body)
	}
	p := into[contract.Problem](r)
	if p.Code != code || p.Status != status || p.Type == "" || p.Title == "" || p.Remedy == "" || p.RequestID == "" {
		r.t.Fatalf("want a whole problem %s, got %s", code, r.body)
	}
	return p
}

// issues checks that the answer is INVALID_INPUT with exactly these paths, in any order.
func (r *reply) issues(paths ...string) contract.Problem {
	r.t.Helper()
	p := r.problem(http.StatusBadRequest, "INVALID_INPUT")
	got := map[string]bool{}
	for _, i := range p.Issues {
		got[i.Path] = true
	}
	for _, path := range paths {
		if !got[path] {
			r.t.Fatalf("no issue at %s in %s", path, r.body)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		r.t.Fatalf("issues beyond %v in %s", paths, r.body)
	}
	return p
}

func into[T any](r *reply) T {
	r.t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	var v T
	if err := d.Decode(&v); err != nil {
		r.t.Fatalf("%v in %s", err, r.body)
	}
	return v
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// estate is a tenant with a site, a pool and a principal that may do everything in it.
type estate struct {
	tenant, site, pool, principal, token string
}

func (w *world) estate(name string) estate {
	w.t.Helper()
	var e estate
	e.tenant = into[contract.Tenant](w.post("/v1/tenants", contract.NewTenant{Name: name}).want(201)).ID
	e.site = into[contract.Site](w.post("/v1/sites", contract.NewSite{Tenant: e.tenant, Name: name + "-site"}).want(201)).ID
	e.pool = into[contract.Pool](w.post("/v1/pools",
		contract.NewPool{Tenant: e.tenant, Site: e.site, Name: name + "-pool"}).want(201)).ID
	e.principal, e.token = w.caller(e.tenant, "tenant", e.tenant, "*")
	return e
}

// caller makes a principal with one binding and a token.
func (w *world) caller(tenant, kind, scope string, actions ...string) (principal, token string) {
	w.t.Helper()
	p := into[contract.Principal](w.post("/v1/principals",
		contract.NewPrincipal{Tenant: tenant, Name: "caller", Kind: "service"}).want(201))
	w.post("/v1/principals/"+p.ID+"/bindings",
		contract.NewBinding{Actions: actions, Scope: contract.Scope{Kind: kind, ID: scope}}).want(201)
	issued := into[contract.IssuedToken](w.post("/v1/principals/"+p.ID+"/tokens", nil).want(201))
	return p.ID, issued.Token
}

var enrolled atomic.Int64

// machine is a valid enrollment with an address of its own.
func machine(pool string) contract.Enrollment {
	n := enrolled.Add(1)
	return contract.Enrollment{
		Pool: pool, Name: fmt.Sprintf("machine-%d", n),
		BMC: contract.BMCAccess{
			Address:     fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255),
			Credentials: contract.Credentials{Username: "root", Password: "calvin"},
		},
	}
}

func (w *world) enroll(pool string, o ...option) contract.Node {
	w.t.Helper()
	return into[contract.Node](w.post("/v1/nodes", machine(pool), o...).want(201))
}

// outcomesPort gives the outcomes of the database the form of the port, and can lose answers.
type outcomesPort struct {
	*postgres.Outcomes
	crash atomic.Bool // answers are not kept
}

func (o *outcomesPort) Begin(ctx context.Context, who, key string, hash []byte, fresh uuid.UUID) (Outcome, error) {
	out, err := o.Outcomes.Begin(ctx, who, key, hash, fresh)
	return Outcome(out), err
}

func (o *outcomesPort) Finish(ctx context.Context, who, key string, status int, h http.Header, body []byte) error {
	if o.crash.Load() {
		return context.Canceled
	}
	return o.Outcomes.Finish(ctx, who, key, status, h, body)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
