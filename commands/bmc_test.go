package commands_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

func TestChangeBMC(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "10.0.0.1", "b8:ce:f6:00:00:01")).State
	call := system()
	in := commands.BMCChange{Address: "10.0.0.2", Credentials: &commands.Credentials{Username: "root", Password: "0987654321"}}
	for range 2 { // the second is the same request again
		done, err := w.ChangeBMC(ctx, call, n.ID, in)
		if err != nil {
			t.Fatal(err)
		}
		bmc := done.State.BMC
		if bmc.Address != "https://10.0.0.2" || bmc.Credentials == n.BMC.Credentials || bmc.TLS != n.BMC.TLS || bmc.Driver != n.BMC.Driver {
			t.Errorf("got %+v", bmc)
		}
		if len(w.secrets.values) != 1 || !strings.Contains(w.secrets.values[bmc.Credentials], "0987654321") {
			t.Errorf("the store holds %v", w.secrets.values)
		}
	}
	if changes := w.count(t, "node.bmc.changed"); changes != 1 {
		t.Errorf("%d changes", changes)
	}
	w.enrolled(t, machine(w.pool, "10.0.0.1")) // it is free
	if _, err := w.Enroll(ctx, system(), machine(w.pool, "10.0.0.2")); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("its new address: %v", err)
	}
}

func TestChangesOfABMCThatAreRefused(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	p := w.newPool(t, tenant.Root, site.Policy{BMCNetworks: []string{"10.0.0.0/24"}}, pool.Policy{})
	n := w.enrolled(t, machine(p, "10.0.0.1")).State
	w.enrolled(t, machine(p, "10.0.0.3"))
	if _, err := w.StartWorkflow(ctx, system(), n.ID, node.Profile{ID: "metal", Version: 1}); err != nil {
		t.Fatal(err)
	}
	secrets := len(w.secrets.values)
	stranger := of(w.newTenant(t))
	for name, test := range map[string]struct {
		call commands.Call
		in   commands.BMCChange
		code fault.Code
		path string
	}{
		"nothing":                {system(), commands.BMCChange{}, fault.InvalidInput, "body"},
		"no address":             {system(), commands.BMCChange{Address: "ftp://x"}, fault.InvalidInput, "body.address"},
		"another network":        {system(), commands.BMCChange{Address: "10.1.0.1"}, fault.InvalidInput, "body.address"},
		"no password":            {system(), commands.BMCChange{Credentials: &commands.Credentials{Username: "u"}}, fault.InvalidInput, "body.credentials.password"},
		"no trust":               {system(), commands.BMCChange{TLS: &node.TLSPolicy{Mode: "hope"}}, fault.InvalidInput, "body.tls.mode"},
		"another node's address": {system(), commands.BMCChange{Address: "10.0.0.3"}, fault.Conflict, ""},
		"while a workflow runs": {
			system(), commands.BMCChange{Address: "10.0.0.4", Credentials: &commands.Credentials{Username: "u", Password: "p"}}, fault.Conflict, "",
		},
		"another tenant's": {stranger, commands.BMCChange{Address: "10.0.0.4"}, fault.NotFound, ""},
	} {
		_, err := w.ChangeBMC(ctx, test.call, n.ID, test.in)
		if fault.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.path) {
			t.Errorf("%s: %v", name, err)
		}
		if len(w.secrets.values) != secrets {
			t.Errorf("%s: credentials of nothing are kept", name)
		}
	}
	if now := w.nodeOf(t, n.ID); *now.BMC != *n.BMC {
		t.Errorf("it is %+v", now.BMC)
	}
	// The address that was claimed for nothing is free again, but not at once.
	if _, err := w.Enroll(ctx, system(), machine(p, "10.0.0.4")); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("within the grace: %v", err)
	}
	w.clock.advance(commands.ClaimGrace + time.Second)
	w.enrolled(t, machine(p, "10.0.0.4"))
}

// A crash after the change leaves the old address claimed: it is free for whoever wants it.
func TestAChangeOfAddressThatWasCutShort(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State
	flaky := w.over(&cut{Store: w.log, skip: 2, lose: true})
	if _, err := flaky.ChangeBMC(ctx, system(), n.ID, commands.BMCChange{Address: "10.0.0.2"}); err == nil {
		t.Fatal("the lost release was not told")
	}
	w.clock.advance(commands.ClaimGrace + time.Second)
	key := claim.Key{Kind: claim.BMCAddress, Scope: n.Site.String(), Value: "10.0.0.2"}
	if freed, err := w.SweepClaim(ctx, key); err != nil || freed {
		t.Errorf("the address that it has: %v, %v", freed, err)
	}
	w.enrolled(t, machine(w.pool, "10.0.0.1"))
}

// meanwhile does something before the first append.
type meanwhile struct {
	event.Store
	once sync.Once
	do   func()
}

func (m *meanwhile) Append(ctx context.Context, s event.Stream, v event.Version, meta event.Meta, e ...event.Event) (event.Position, error) {
	m.once.Do(m.do)
	return m.Store.Append(ctx, s, v, meta, e...)
}

// Of two changes of different things at once, both count: neither brings back what the other has replaced, and forgotten.
func TestTwoChangesOfABMCAtOnce(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State
	slow := w.over(&meanwhile{Store: w.log, do: func() {
		rotated := commands.BMCChange{Credentials: &commands.Credentials{Username: "root", Password: "rotated"}}
		if _, err := w.ChangeBMC(ctx, system(), n.ID, rotated); err != nil {
			t.Error(err)
		}
	}})
	if _, err := slow.ChangeBMC(ctx, system(), n.ID, commands.BMCChange{Address: "10.0.0.2"}); err != nil {
		t.Fatal(err)
	}
	bmc := w.nodeOf(t, n.ID).BMC
	if bmc.Address != "https://10.0.0.2" || len(w.secrets.values) != 1 || !strings.Contains(w.secrets.values[bmc.Credentials], "rotated") {
		t.Errorf("it is reached by %+v; the store holds %v", bmc, w.secrets.values)
	}
}
