package commands_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

var imageHost = node.Profile{ID: "image-host", Version: 1}

func TestAWholeLifeThroughTheVerbs(t *testing.T) {
	w := newWorld(t).equip(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	w.ready(t, n)
	if _, err := w.Deploy(ctx, system(), n, imageHost); err != nil {
		t.Fatal(err)
	}
	w.workflow(t, n)
	if _, err := w.Undeploy(ctx, system(), n, ""); err != nil {
		t.Fatal(err)
	}
	started, err := w.StartWorkflow(ctx, system(), n, node.Profile{ID: "metal-release", Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Complete(ctx, system(), n, started.State.Workflow.ID, ""); fault.CodeOf(err) != fault.UnverifiedWipe {
		t.Fatalf("released without a wipe: %v", err)
	}
}

func TestAnAgentlessPoolMayReleaseUnverified(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	for policy, want := range map[pool.Policy]fault.Code{
		{Agent: pool.AgentNone, UnverifiedRelease: pool.AllowUnverifiedRelease}: "",
		{Agent: pool.AgentNone}: fault.UnverifiedWipe,
	} {
		p := w.newPool(t, tenant.Root, site.Policy{}, policy)
		n := w.enrolled(t, machine(p, "10.0.0.1")).State.ID
		w.workflow(t, n)
		w.workflow(t, n)
		started, err := w.StartWorkflow(ctx, system(), n, node.Profile{ID: "metal-commission-oob", Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		done, err := w.Complete(ctx, system(), n, started.State.Workflow.ID, "")
		if fault.CodeOf(err) != want {
			t.Errorf("%+v: got %v", policy, err)
		}
		if err == nil && !done.State.ReleaseUnverified {
			t.Errorf("%+v: the release is not marked", policy)
		}
	}
}

func TestIfMatch(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	first := w.enrolled(t, machine(w.pool, "10.0.0.1"))
	call := system()
	call.IfMatch = &first.Version
	if _, err := w.Cordon(ctx, call, first.State.ID, "fan"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Cordon(ctx, call, first.State.ID, "fan"); err != nil {
		t.Fatalf("the same request again: %v", err)
	}
	call.Command = fresh()
	if _, err := w.Uncordon(ctx, call, first.State.ID); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("a stale version: %v", err)
	}
}

// The same request again answers with the first outcome, whatever became of the node since.
func TestTheFirstOutcomeAgain(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	call := system()
	first, err := w.Cordon(ctx, call, n, "fan")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Uncordon(ctx, system(), n); err != nil {
		t.Fatal(err)
	}
	again, err := w.over(w.log).Cordon(ctx, call, n, "fan")
	if err != nil || again.Version != first.Version || again.State.Cordon == nil || again.Position != first.Position {
		t.Fatalf("first %+v, again %+v, %v", first, again, err)
	}
	if w.count(t, "node.cordon.set") != 1 {
		t.Fatal("cordoned twice")
	}
}

// P9: of two verbs at once on one version exactly one wins; the other gets CONFLICT or INVALID_STATE.
func TestTwoVerbsAtOnce(t *testing.T) {
	for round := range 30 {
		w := newWorld(t).equip(t)
		n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
		w.ready(t, n)
		ctx := context.Background()
		replicas := []*commands.Service{w.over(w.log), w.over(w.log)}
		results := make([]error, len(replicas))
		var wg sync.WaitGroup
		for i, r := range replicas {
			wg.Go(func() {
				if i == 0 {
					_, results[i] = r.Deploy(ctx, system(), n, imageHost)
				} else {
					_, results[i] = r.Retire(ctx, system(), n, "")
				}
			})
		}
		wg.Wait()
		lost := 0
		for _, err := range results {
			switch fault.CodeOf(err) {
			case "":
			case fault.Conflict, fault.InvalidState:
				lost++
			default:
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if lost != 1 || w.count(t, "node.provision.deploying", "node.provision.retiring") != 1 {
			t.Fatalf("round %d: %v", round, results)
		}
	}
}

// busy is a log on which somebody else is always faster, some number of times.
type busy struct {
	event.Store
	faster func()
	times  int
}

func (b *busy) Append(ctx context.Context, s event.Stream, v event.Version, m event.Meta, e ...event.Event) (event.Position, error) {
	if b.times > 0 && s.Category() == node.Category {
		b.times--
		b.faster()
	}
	return b.Store.Append(ctx, s, v, m, e...)
}

func TestALostRaceIsDecidedThreeTimesMore(t *testing.T) {
	for times, want := range map[int]fault.Code{0: "", 3: "", 4: fault.Conflict} {
		w := newWorld(t)
		ctx := context.Background()
		n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
		turn := 0
		slow := w.over(&busy{Store: w.log, times: times, faster: func() {
			turn++
			if _, err := w.SetMaintenance(ctx, system(), n, true, strconv.Itoa(turn)); err != nil {
				t.Error(err)
			}
		}})
		if _, err := slow.Cordon(ctx, system(), n, "fan"); fault.CodeOf(err) != want {
			t.Errorf("%d races lost: got %v, want %q", times, err, want)
		}
	}
}

// newer is an event of a later version of this program.
type newer struct{}

func (newer) EventType() string { return "node.teleported" }

func TestAnEventOfANewerVersionStopsDecisions(t *testing.T) {
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "10.0.0.1"))
	later := &withUnknown{Store: w.log, stream: node.StreamOf(n.State.ID)}
	_, err := w.over(later).Cordon(context.Background(), system(), n.State.ID, "")
	if fault.CodeOf(err) != fault.Unavailable {
		t.Fatalf("got %v", err)
	}
}

type withUnknown struct {
	event.Store
	stream event.Stream
}

func (u *withUnknown) Read(ctx context.Context, s event.Stream, after event.Version) ([]event.Recorded, error) {
	events, err := u.Store.Read(ctx, s, after)
	if s == u.stream {
		events = append(events, event.Recorded{Stream: s, Version: after + event.Version(len(events)) + 1, Event: event.Unknown{Type: newer{}.EventType()}})
	}
	return events, err
}

func TestAnotherTenantsNodeDoesNotExist(t *testing.T) {
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	other := of(w.newTenant(t))
	verbs := map[string]func() error{
		"deploy": func() error { _, err := w.Deploy(context.Background(), other, n, imageHost); return err },
		"power":  func() error { _, err := w.Power(context.Background(), other, n, node.ActionOff); return err },
		"cordon": func() error { _, err := w.Cordon(context.Background(), other, n, ""); return err },
		"enroll": func() error { _, err := w.Enroll(context.Background(), other, machine(w.pool, "10.0.0.2")); return err },
	}
	for name, verb := range verbs {
		if err := verb(); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestTokensAndBindings(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	owner := w.newTenant(t)
	made, err := w.CreatePrincipal(ctx, of(owner), commands.NewPrincipal{Tenant: owner, Name: "ci", Kind: principal.Service})
	if err != nil {
		t.Fatal(err)
	}
	p, call := made.State.ID, of(owner)
	done, tokenID, token, err := w.IssueToken(ctx, call, p, "build", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if got := done.State.Tokens[tokenID]; got.Hash != commands.TokenHash(token) || !got.ExpiresAt.Equal(w.clock.read().Add(time.Hour)) {
		t.Errorf("issued %+v", got)
	}
	if _, _, again, err := w.IssueToken(ctx, call, p, "build", time.Hour); err != nil || again != token {
		t.Errorf("the same request again gave another token: %v", err)
	}
	if _, _, err := w.Bind(ctx, of(owner), p, []principal.Pattern{"compute:nodes:*"}, scope(owner)); err != nil {
		t.Error(err)
	}
	// Nobody grants what lies in another tenant.
	if _, _, err := w.Bind(ctx, of(owner), p, []principal.Pattern{"*"}, scope(tenant.Root)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("bound at the root tenant: %v", err)
	}
	if _, _, err := w.Bind(ctx, of(owner), p, []principal.Pattern{"compute:moon:*"}, scope(owner)); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("bound an action that is not one: %v", err)
	}
	if _, err := w.RevokeToken(ctx, of(owner), p, tokenID); err != nil {
		t.Error(err)
	}
	if _, err := w.RevokeToken(ctx, of(owner), p, tokenID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("revoked twice: %v", err)
	}
}

func scope(t id.Tenant) principal.Scope {
	return principal.Scope{Kind: principal.ScopeTenant, ID: t.String()}
}

func TestBootstrapIsIdempotent(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := w.over(w.log)
			if _, err := r.Bootstrap(ctx); err != nil {
				t.Error(err)
			}
			if err := r.GiveAdministratorToken(ctx, "0123456789abcdef0123456789abcdef", "file"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if has, err := w.Bootstrap(ctx); err != nil || !has {
		t.Fatalf("has a token: %v, %v", has, err)
	}
	if n := w.count(t, "principal.token.issued", "principal.bound", "principal.created", "tenant.created"); n != 4 {
		t.Fatalf("%d events", n)
	}
	if err := w.GiveAdministratorToken(ctx, "short", ""); fault.CodeOf(err) != fault.InvalidConfig {
		t.Fatalf("a short token: %v", err)
	}
}

// Nobody can shut everybody out: the first administrator stays, and a revoked token works again once it is given anew.
func TestTheFirstAdministratorStays(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	const token = "0123456789abcdef0123456789abcdef"
	if err := w.GiveAdministratorToken(ctx, token, "file"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.SetPrincipalEnabled(ctx, system(), commands.Administrator, false); fault.CodeOf(err) != fault.InvalidState {
		t.Errorf("disabled: %v", err)
	}
	enabled, err := w.SetPrincipalEnabled(ctx, system(), commands.Administrator, true)
	if err != nil {
		t.Fatal(err)
	}
	for b := range enabled.State.Bindings {
		if _, err := w.Unbind(ctx, system(), commands.Administrator, b); fault.CodeOf(err) != fault.InvalidState {
			t.Errorf("unbound: %v", err)
		}
	}
	for held := range enabled.State.Tokens {
		if _, err := w.RevokeToken(ctx, system(), commands.Administrator, held); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.GiveAdministratorToken(ctx, token, "file"); err != nil {
		t.Fatal(err)
	}
	if has, err := w.Bootstrap(ctx); err != nil || !has {
		t.Errorf("has a token: %v, %v", has, err)
	}
}

func TestUnknownThings(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	if _, err := w.Manage(ctx, system(), id.Of[id.Node](fresh())); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a node: %v", err)
	}
	if _, err := w.Enroll(ctx, system(), machine(id.Of[id.Pool](fresh()), "10.0.0.1")); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a pool: %v", err)
	}
	_, err := w.CreatePool(ctx, system(), commands.NewPool{Tenant: tenant.Root, Site: id.Of[id.Site](fresh()), Name: "x"})
	if fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a site: %v", err)
	}
	var f *fault.Error
	if !errors.As(err, &f) || f.Message == "" {
		t.Errorf("no message: %v", err)
	}
}
