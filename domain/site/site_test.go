package site_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/site"
)

func TestPolicy(t *testing.T) {
	create := site.Create{Facts: site.Created{Site: id.Of[id.Site](uuid.UUID{15: 1}), Name: "x", Policy: site.Policy{}}}
	if _, err := site.Decide(site.State{}, site.ChangePolicy{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the policy of nothing: %v", err)
	}
	made, err := site.Decide(site.State{}, create)
	if err != nil {
		t.Fatal(err)
	}
	s := site.Decider.Fold(site.State{}, made...)
	if _, err := site.Decide(s, create); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("created twice: %v", err)
	}
	good := site.Policy{BMCNetworks: []string{"10.0.0.0/8", "fe80::/10"}}
	changed, err := site.Decide(s, site.ChangePolicy{Policy: good})
	if err != nil || len(changed) != 1 {
		t.Fatalf("got %v, %v", changed, err)
	}
	s = site.Decider.Fold(s, changed...)
	if again, err := site.Decide(s, site.ChangePolicy{Policy: good}); err != nil || len(again) != 0 {
		t.Errorf("the same policy again: %v, %v", again, err)
	}
	for _, bad := range []site.Policy{{BMCNetworks: []string{"10.0.0.0"}}, {BMCNetworks: []string{"10.0.0.0/8", "10.0.0.0/33"}}} {
		if _, err := site.Decide(s, site.ChangePolicy{Policy: bad}); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestAllows(t *testing.T) {
	p := site.Policy{BMCNetworks: []string{"10.0.0.0/24", "fe80::/10"}}
	for host, want := range map[string]bool{
		"10.0.0.7": true, "10.0.1.7": false, "fe80::1%eth0": true, "2001:db8::1": false, "bmc.example": false,
	} {
		if p.Allows(host) != want {
			t.Errorf("%s allowed: %v", host, p.Allows(host))
		}
	}
	if !(site.Policy{}).Allows("bmc.example") {
		t.Error("a site without networks refuses a name")
	}
}
