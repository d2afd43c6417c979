package node_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

func TestChangeBMC(t *testing.T) {
	pinned := strings.Repeat("1", 64)
	before := node.BMC{
		Driver: "redfish", Address: "https://10.0.0.1", Credentials: "secret:1", TLS: node.TLSPolicy{Mode: node.TLSPinOnFirstUse},
	}
	with := func(edit func(*node.BMC)) node.BMC {
		to := before
		edit(&to)
		return to
	}
	password := with(func(b *node.BMC) { b.Credentials = "secret:2" })
	trust := with(func(b *node.BMC) { b.TLS = node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: strings.Repeat("2", 64)} })
	moved := with(func(b *node.BMC) { b.Address = "https://10.0.0.2" })
	state := func(edit func(*node.State)) node.State {
		s := node.State{
			Provision: node.Ready, BMC: &before, Learned: node.BMCLearned{Fingerprint: pinned, System: "1"},
			Hardware: node.Inventories{OutOfBand: &node.Hardware{Serial: "SN-1", UUID: "u"}},
		}
		edit(&s)
		return s
	}
	at := func(p node.ProvisionState) func(*node.State) { return func(s *node.State) { s.Provision = p } }
	works := func(s *node.State) { s.Workflow = &node.Workflow{} }
	for name, test := range map[string]struct {
		state       node.State
		to          node.BMC
		certificate string // pinned afterwards
		system      string // known afterwards
		code        fault.Code
	}{
		"credentials":                         {state(at(node.Deployed)), password, pinned, "1", ""},
		"credentials while a workflow runs":   {state(works), password, pinned, "1", ""},
		"trust":                               {state(at(node.Failed)), trust, trust.TLS.Fingerprint, "1", ""},
		"address":                             {state(at(node.Ready)), moved, pinned, "SN-1", ""},
		"address, known by its UUID":          {state(func(s *node.State) { s.Hardware.OutOfBand.Serial = "" }), moved, pinned, "u", ""},
		"address, never inspected":            {state(func(s *node.State) { s.Hardware.OutOfBand = nil }), moved, pinned, "1", ""},
		"address while a workflow runs":       {state(works), moved, pinned, "1", fault.Conflict},
		"address while power is switched":     {state(func(s *node.State) { s.PowerAction = node.ActionOff }), moved, pinned, "1", fault.Conflict},
		"nothing":                             {state(at(node.Ready)), before, pinned, "1", ""},
		"a machine that has left":             {state(at(node.Retired)), password, pinned, "1", fault.InvalidState},
		"a machine that came without one":     {state(func(s *node.State) { s.BMC, s.Learned = nil, node.BMCLearned{} }), password, "", "", fault.InvalidState},
		"credentials of a machine in a reset": {state(func(s *node.State) { s.PowerAction = node.ActionReset }), password, pinned, "1", ""},
	} {
		events, err := node.Decide(test.state, node.ChangeBMC{BMC: test.to})
		after := node.Decider.Fold(test.state, events...)
		if fault.CodeOf(err) != test.code || after.PinnedCertificate() != test.certificate || after.Learned.System != test.system {
			t.Errorf("%s: %v, certificate %s, system %s", name, err, after.PinnedCertificate(), after.Learned.System)
		}
		if test.code != "" {
			continue
		}
		if diff := cmp.Diff(&test.to, after.BMC); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if again, err := node.Decide(after, node.ChangeBMC{BMC: test.to}); err != nil || len(again) > 0 {
			t.Errorf("%s: changed twice: %v, %v", name, again, err)
		}
	}
}
