package builtin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/processmanagers/steps"
)

func shipped(t *testing.T) map[string]profile.Document {
	t.Helper()
	docs, err := builtin.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]profile.Document{}
	for _, doc := range docs {
		byID[doc.ID] = doc
	}
	return byID
}

func resolved(t *testing.T, doc profile.Document) []profile.Resolved {
	t.Helper()
	catalog, err := steps.NewCatalog(agentcommand.Kinds, steps.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	all, issues := profile.Resolve(doc, catalog, nil)
	for _, i := range issues {
		t.Errorf("%s: %s: %s", doc.ID, i.Path, i.Message)
	}
	return all
}

// Every state that drives a workflow has its profile, with and without an agent.
func TestEveryStateHasItsProfile(t *testing.T) {
	docs := shipped(t)
	wanted := []string{"metal-unrescue", "image-host"}
	for _, row := range node.States {
		if row.Profile != "" {
			wanted = append(wanted, row.Profile)
		}
	}
	for _, id := range wanted {
		doc, ok := docs[id]
		if !ok || doc.Version != 1 || doc.Target != profile.TargetMetal {
			t.Errorf("%s is not shipped as version 1 of target metal: %+v", id, doc)
		}
		if _, ok := docs[id+"-oob"]; !ok && id != "image-host" {
			t.Errorf("%s has no variant for pools without agents", id)
		}
	}
}

func TestEveryProfileResolves(t *testing.T) {
	for id, doc := range shipped(t) {
		for _, s := range resolved(t, doc) {
			if s.Timeout <= 0 {
				t.Errorf("%s: %s has no timeout", id, s.ID)
			}
			agentStep := s.RunsOn == profile.OnRamdisk || s.RunsOn == profile.OnNode
			if oob := strings.HasSuffix(id, "-oob"); oob && (agentStep || s.Action == "wait.agentJoined" || s.Action == "metal.ensureRamdisk") {
				t.Errorf("%s waits for an agent in %s", id, s.ID)
			}
			relaysToSite := slices.Contains(s.Sends, "driver.invoke") || slices.Contains(s.Sends, "boot.entry.set")
			if relaysToSite && s.Retries == 0 {
				t.Errorf("%s: %s fails with the first restart of the site's agent", id, s.ID)
			}
		}
	}
}

func order(all []profile.Resolved, phase profile.Phase) []string {
	var actions []string
	for _, s := range all {
		if s.Phase == phase {
			actions = append(actions, s.Action)
		}
	}
	return actions
}

// A released machine is seen off before it boots the ramdisk, its disks are those of a fresh inventory, and it is off in the
// end whatever happened.
func TestReleaseOrder(t *testing.T) {
	for _, id := range []string{"metal-release", "metal-retire"} {
		all := resolved(t, shipped(t)[id])
		main := order(all, profile.PhaseMain)
		var at []int
		for _, action := range []string{"power.setPower", "wait.observed", "metal.ensureRamdisk", "inspect.hardware", "disk.wipe"} {
			at = append(at, slices.Index(main, action))
		}
		if at[0] != 0 || !slices.IsSorted(at) {
			t.Errorf("%s runs %v", id, main)
		}
		if got := order(all, profile.PhaseCleanup); !slices.Equal(got, []string{"boot.clear", "power.setPower"}) {
			t.Errorf("%s cleans up by %v", id, got)
		}
	}
}

// A retry of a step on the ramdisk boots the ramdisk again: a release that failed has left the machine off.
func TestStepsOnTheRamdiskNeedIt(t *testing.T) {
	for id, doc := range shipped(t) {
		for _, s := range resolved(t, doc) {
			onRamdisk := s.RunsOn == profile.OnRamdisk || s.Action == "deploy.deploy"
			if onRamdisk != (s.Needs == "ramdisk") {
				t.Errorf("%s: %s needs %q", id, s.ID, s.Needs)
			}
		}
	}
}

func TestADiskThatCannotBeWipedDoesNotTrapARetiringMachine(t *testing.T) {
	for _, s := range resolved(t, shipped(t)["metal-retire"]) {
		if s.Action == "disk.wipe" && s.Policy != profile.PolicyContinue {
			t.Fatalf("got %s", s.Policy)
		}
	}
}

func TestADeployResetsAMachineThatDidNotComeBack(t *testing.T) {
	all := resolved(t, shipped(t)["image-host"])
	i := slices.IndexFunc(all, func(s profile.Resolved) bool { return s.Action == "boot.kexec" })
	j := slices.IndexFunc(all, func(s profile.Resolved) bool { return s.ArmedBy == all[i].ID && s.Phase == profile.PhaseOnFailure })
	if !all[i].Rejoin || j < 0 || all[j].Action != "power.setPower" || string(all[j].With) != `{"action":"reset"}` {
		t.Fatalf("got %+v and %d", all[i], j)
	}
}
