package node_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

func TestLearnBMC(t *testing.T) {
	const one, two = "f1", "f2"
	news := node.BMCLearned{Fingerprint: one, Quirks: json.RawMessage(`{"a":1}`), System: "1"}
	for name, test := range map[string]struct {
		mode   node.TLSMode
		pinned string // by the operator
		known  node.BMCLearned
		news   node.BMCLearned
		want   node.BMCLearned
		code   fault.Code
	}{
		"first use":              {node.TLSPinOnFirstUse, "", node.BMCLearned{}, news, news, ""},
		"the same again":         {node.TLSPinOnFirstUse, "", news, news, news, ""},
		"more quirks":            {node.TLSPinOnFirstUse, "", news, node.BMCLearned{Quirks: json.RawMessage(`{"a":2}`)}, node.BMCLearned{one, json.RawMessage(`{"a":2}`), "1"}, ""},
		"another certificate":    {node.TLSPinOnFirstUse, "", news, node.BMCLearned{Fingerprint: two}, news, fault.DriverError},
		"as the operator pinned": {node.TLSPinned, one, node.BMCLearned{}, node.BMCLearned{Fingerprint: one}, node.BMCLearned{Fingerprint: one}, ""},
		"not as pinned":          {node.TLSPinned, two, node.BMCLearned{}, node.BMCLearned{Fingerprint: one}, node.BMCLearned{}, fault.DriverError},
		"trusted by a CA":        {node.TLSSystemCA, "", node.BMCLearned{}, news, node.BMCLearned{Quirks: news.Quirks, System: "1"}, ""},
		"nothing":                {node.TLSPinOnFirstUse, "", news, node.BMCLearned{}, news, ""},
		"no JSON":                {node.TLSPinOnFirstUse, "", node.BMCLearned{}, node.BMCLearned{Quirks: json.RawMessage(`{`)}, node.BMCLearned{}, fault.InvalidInput},
		"too much": {node.TLSPinOnFirstUse, "", node.BMCLearned{}, node.BMCLearned{Quirks: json.RawMessage(`"` + strings.Repeat("x", node.MaxQuirks) + `"`)},
			node.BMCLearned{}, fault.InvalidInput},
	} {
		s := node.State{
			Provision: node.Enrolling, Learned: test.known, BMC: &node.BMC{TLS: node.TLSPolicy{Mode: test.mode, Fingerprint: test.pinned}},
		}
		events, err := node.Decide(s, node.LearnBMC{Facts: test.news})
		if fault.CodeOf(err) != test.code {
			t.Errorf("%s: %v, want %q", name, err, test.code)
		}
		var f *fault.Error
		if test.code == fault.DriverError && (!errors.As(err, &f) || f.Details["reason"] != "certificate-changed") {
			t.Errorf("%s: %v", name, err)
		}
		after := node.Decider.Fold(s, events...)
		if diff := cmp.Diff(test.want, after.Learned); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if again, _ := node.Decide(after, node.LearnBMC{Facts: test.news}); test.code == "" && len(again) > 0 {
			t.Errorf("%s: learned twice", name)
		}
	}
	if _, err := node.Decide(node.State{Provision: node.Adopted}, node.LearnBMC{Facts: news}); fault.CodeOf(err) != fault.InvalidState {
		t.Errorf("without a BMC: %v", err)
	}
}

func TestTrustBMC(t *testing.T) {
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	for name, test := range map[string]struct {
		state node.State
		trust string
		want  string
		code  fault.Code
	}{
		"renewed":        {node.State{BMC: &node.BMC{TLS: node.TLSPolicy{Mode: node.TLSPinOnFirstUse}}, Learned: node.BMCLearned{Fingerprint: one}}, two, two, ""},
		"as it was":      {node.State{BMC: &node.BMC{TLS: node.TLSPolicy{Mode: node.TLSPinOnFirstUse}}, Learned: node.BMCLearned{Fingerprint: one}}, one, one, ""},
		"enrolled with":  {node.State{BMC: &node.BMC{TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: one}}}, two, two, ""},
		"no fingerprint": {node.State{BMC: &node.BMC{TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: one}}}, strings.ToUpper(strings.Repeat("ab", 32)), one, fault.InvalidInput},
		"another policy": {node.State{BMC: &node.BMC{TLS: node.TLSPolicy{Mode: node.TLSInsecure}}}, two, "", fault.InvalidState},
		"no BMC":         {node.State{}, two, "", fault.InvalidState},
	} {
		test.state.Provision = node.Ready
		events, err := node.Decide(test.state, node.TrustBMC{Fingerprint: test.trust})
		after := node.Decider.Fold(test.state, events...)
		if fault.CodeOf(err) != test.code || after.PinnedCertificate() != test.want {
			t.Errorf("%s: %v; pinned %q, want %q", name, err, after.PinnedCertificate(), test.want)
		}
		if test.code != "" {
			continue
		}
		if _, err := node.Decide(after, node.LearnBMC{Facts: node.BMCLearned{Fingerprint: test.want}}); err != nil {
			t.Errorf("%s: what is trusted is refused: %v", name, err)
		}
	}
}
