package commands_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

func TestEnrollKeepsCredentialsOutOfTheLog(t *testing.T) {
	w := newWorld(t)
	in := machine(w.pool, "BMC-7.Example:443", "B8-CE-F6-00-00-01")
	in.BMC.Password = "0123456789 \"'{{;é\n"
	done := w.enrolled(t, in)
	bmc := done.State.BMC
	if bmc.Address != "https://bmc-7.example" || done.State.MACs[0] != "b8:ce:f6:00:00:01" {
		t.Errorf("not normalised: %+v", done.State)
	}
	if !strings.Contains(w.secrets.values[bmc.Credentials], `0123456789 \"'{{;é\n`) {
		t.Errorf("the store holds %q", w.secrets.values[bmc.Credentials])
	}
	events, _, err := w.log.ReadAll(context.Background(), 0, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if strings.Contains(string(e.Data)+string(e.RawMeta), "0123456789") {
			t.Errorf("%s holds the password", e.Type)
		}
	}
}

func TestOneAddressOneNode(t *testing.T) {
	tests := map[string][2]commands.Enrollment{
		"a BMC in two forms": {{BMC: at1("10.0.0.10")}, {BMC: at1("HTTPS://10.0.0.10:443/redfish/v1/")}},
		"an IPv6 BMC":        {{BMC: at1("2001:db8::1")}, {BMC: at1("[2001:DB8:0::1]:443")}},
		"a MAC in two forms": {
			{BMC: at1("10.0.0.1"), MACs: []string{"b8:ce:f6:00:00:01"}}, {BMC: at1("10.0.0.2"), MACs: []string{"B8CE.F600.0001"}},
		},
	}
	for name, pair := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pair[0].Pool, pair[1].Pool = w.pool, w.pool
			first := w.enrolled(t, pair[0])
			_, err := w.Enroll(context.Background(), system(), pair[1])
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.Conflict || f.Details["holder"] != first.State.ID.String() {
				t.Fatalf("got %v, want CONFLICT that names %s", err, first.State.ID)
			}
		})
	}
}

func at1(address string) commands.BMCAccess {
	return commands.BMCAccess{Address: address, Username: "u", Password: "p"}
}

// Sites reuse private networks: the same address elsewhere is another BMC.
func TestTheSameAddressAtAnotherSite(t *testing.T) {
	w := newWorld(t)
	w.enrolled(t, machine(w.pool, "10.0.0.10"))
	w.enrolled(t, machine(w.newPool(t, tenant.Root, site.Policy{}, pool.Policy{}), "10.0.0.10"))
}

func TestARefusedEnrollmentGivesBackWhatItTook(t *testing.T) {
	w := newWorld(t)
	w.enrolled(t, machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01"))
	refused := machine(w.pool, "10.0.0.2", "b8:ce:f6:00:00:02", "b8:ce:f6:00:00:01")
	if _, err := w.Enroll(context.Background(), system(), refused); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("got %v", err)
	}
	w.enrolled(t, machine(w.pool, "10.0.0.2", "b8:ce:f6:00:00:02"))
}

// A secret store that is away leaves no address blocked.
func TestAnEnrollmentWhoseCredentialsCantBeKept(t *testing.T) {
	w := newWorld(t)
	w.secrets.broken = true
	in := machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01")
	if _, err := w.Enroll(context.Background(), system(), in); fault.CodeOf(err) != fault.Unavailable {
		t.Fatalf("got %v", err)
	}
	w.secrets.broken = false
	w.enrolled(t, in)
}

// The holder of another tenant is not named: what a caller may not see does not exist.
func TestAConflictDoesNotNameAnotherTenantsNode(t *testing.T) {
	w := newWorld(t)
	w.enrolled(t, machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01"))
	other := w.newTenant(t)
	in := machine(w.newPool(t, other, site.Policy{}, pool.Policy{}), "10.0.0.1", "b8:ce:f6:00:00:01")
	_, err := w.Enroll(context.Background(), of(other), in)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.Conflict || strings.Contains(f.Error(), "node_") || f.Details["holder"] != nil {
		t.Fatalf("got %v %v", err, f.Details)
	}
}

func TestEnrollListsEveryIssue(t *testing.T) {
	w := newWorld(t)
	p := w.newPool(t, tenant.Root, site.Policy{BMCNetworks: []string{"10.1.0.0/16"}}, pool.Policy{})
	_, err := w.Enroll(context.Background(), system(), commands.Enrollment{
		Pool: p, Name: " x ", Labels: map[string]string{"a b": "c", "k": "v v"},
		MACs: []string{"b8:ce:f6:00:00:01", "nonsense", "B8CEF6000001", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"},
		BMC: commands.BMCAccess{
			Driver: "carrier-pigeon", Address: "https://10.2.0.1", Username: "u",
			TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: "zz", CA: "not one"},
		},
	})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.InvalidInput {
		t.Fatalf("got %v", err)
	}
	want := []string{
		"body.name", "body.labels", "body.labels.k", "body.bmc.driver", "body.bmc.address", "body.bmc.credentials.password",
		"body.bmc.tls.fingerprint", "body.bmc.tls.ca", "body.macs[1]", "body.macs[2]", "body.macs[3]", "body.macs[4]",
	}
	var got []string
	for _, i := range f.Issues {
		got = append(got, i.Path)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// cut is a log whose connection breaks: the append happens or not, and the caller does not hear.
type cut struct {
	event.Store
	mu   sync.Mutex
	skip int // appends that go through first
	done bool
	lose bool // the append itself is lost too
}

func (c *cut) Append(ctx context.Context, s event.Stream, v event.Version, m event.Meta, e ...event.Event) (event.Position, error) {
	c.mu.Lock()
	broken := !c.done && c.skip == 0
	c.skip--
	c.done = c.done || broken
	c.mu.Unlock()
	if broken && c.lose {
		return 0, event.ErrUnknownOutcome
	}
	p, err := c.Store.Append(ctx, s, v, m, e...)
	if broken {
		return 0, event.ErrUnknownOutcome
	}
	return p, err
}

// An enrollment that breaks at any append, before or after the log took it, is one node when it is asked again.
func TestEnrollAgainAfterACutAtEveryAppend(t *testing.T) {
	for _, lose := range []bool{false, true} {
		for broken := range 3 {
			w := newWorld(t)
			call, in := system(), machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01")
			flaky := w.over(&cut{Store: w.log, skip: broken, lose: lose})
			if _, err := flaky.Enroll(context.Background(), call, in); fault.CodeOf(err) != fault.Unavailable {
				t.Fatalf("cut at %d: got %v", broken, err)
			}
			first, err := w.over(w.log).Enroll(context.Background(), call, in)
			if err != nil {
				t.Fatalf("cut at %d, lost %v: %v", broken, lose, err)
			}
			again, err := w.Enroll(context.Background(), call, in)
			if err != nil || again.Version != first.Version || again.State.ID != first.State.ID || again.Position != first.Position {
				t.Fatalf("cut at %d: first %+v, again %+v, %v", broken, first, again, err)
			}
			if n := w.count(t, "node.enrolled"); n != 1 {
				t.Fatalf("cut at %d: enrolled %d times", broken, n)
			}
		}
	}
}

func (w *world) count(t *testing.T, types ...string) int {
	t.Helper()
	events, _, err := w.log.ReadAll(context.Background(), 0, types, 10000)
	if err != nil {
		t.Fatal(err)
	}
	return len(events)
}

// A claim whose node never appeared is free after the grace; the slow enrollment can't appear afterwards.
func TestOrphanedClaims(t *testing.T) {
	w := newWorld(t)
	call, in := system(), machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01")
	flaky := w.over(&cut{Store: w.log, skip: 2, lose: true})
	if _, err := flaky.Enroll(context.Background(), call, in); fault.CodeOf(err) != fault.Unavailable {
		t.Fatalf("got %v", err)
	}
	if _, err := w.Enroll(context.Background(), system(), in); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("within the grace: got %v", err)
	}
	w.clock.advance(commands.ClaimGrace + time.Second)
	w.enrolled(t, in)
	if _, err := w.Enroll(context.Background(), call, in); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("the slow enrollment appeared after its claims were given away: %v", err)
	}
	if n := w.count(t, "node.enrolled"); n != 1 {
		t.Fatalf("%d nodes", n)
	}
}

func TestRetiringFreesTheAddresses(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	in := machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01")
	first := w.enrolled(t, in).State.ID
	if _, err := w.Fail(ctx, system(), first, id.Workflow{}, fault.DriverError, "dead"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Abandon(ctx, system(), first, "burnt"); err != nil {
		t.Fatal(err)
	}
	if len(w.secrets.values) != 0 {
		t.Errorf("the credentials of a retired node are still kept")
	}
	w.enrolled(t, in)

	// A crash between the last move and the release of the claims: the sweep frees them.
	second, err := w.Enroll(ctx, system(), machine(w.pool, "10.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Fail(ctx, system(), second.State.ID, id.Workflow{}, fault.DriverError, "dead"); err != nil {
		t.Fatal(err)
	}
	flaky := w.over(&cut{Store: w.log, skip: 1, lose: true})
	if _, err := flaky.Abandon(ctx, system(), second.State.ID, "burnt"); err == nil {
		t.Fatal("the lost release was not told")
	}
	key := claim.Key{Kind: claim.BMCAddress, Scope: second.State.Site.String(), Value: "10.0.0.2"}
	if freed, err := w.SweepClaim(ctx, key); err != nil || !freed {
		t.Fatalf("swept %v, %v", freed, err)
	}
	if freed, err := w.SweepClaim(ctx, key); err != nil || freed {
		t.Fatalf("swept again: %v, %v", freed, err)
	}
	w.enrolled(t, machine(w.pool, "10.0.0.2"))
}

// A retirement that was cut short before its end is finished by whoever looks after the addresses: nothing else of a retired
// node is looked at again.
func TestAHalfRetiredNodeIsFinished(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	half := w.enrolled(t, machine(w.pool, "10.0.0.1")).State
	by := w.signer(t, half.ID)
	if _, err := w.Fail(ctx, system(), half.ID, id.Workflow{}, fault.DriverError, "dead"); err != nil {
		t.Fatal(err)
	}
	w.secrets.broken = true
	flaky := w.over(&cut{Store: w.log, skip: 1, lose: true})
	if _, err := flaky.Abandon(ctx, system(), half.ID, "burnt"); err == nil {
		t.Fatal("what was not done was not told")
	}
	key := claim.Key{Kind: claim.BMCAddress, Scope: half.Site.String(), Value: "10.0.0.1"}
	if freed, err := w.SweepClaim(ctx, key); err == nil || freed {
		t.Fatalf("the secret store is away, and the address is free: %v", err)
	}
	w.secrets.broken = false
	if freed, err := w.SweepClaim(ctx, key); err != nil || !freed {
		t.Fatalf("swept %v, %v", freed, err)
	}
	if len(w.secrets.values) != 0 {
		t.Error("the credentials of a retired node are still kept")
	}
	if after, err := w.Agent(ctx, by.id); err != nil || len(after.Current) != 0 {
		t.Errorf("the agent of a retired node has %d certificates, %v", len(after.Current), err)
	}
}

// A hundred callers want one BMC: one node has it.
func TestConcurrentEnrollments(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 100 {
		wg.Go(func() {
			_, err := w.over(w.log).Enroll(context.Background(), system(), machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case fault.CodeOf(err) != fault.Conflict:
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if won != 1 || w.count(t, "node.enrolled") != 1 {
		t.Fatalf("%d won, %d enrolled", won, w.count(t, "node.enrolled"))
	}
}
