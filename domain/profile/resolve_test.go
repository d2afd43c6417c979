package profile_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
)

// catalog is a few steps of each kind.
type catalog map[string]profile.Spec

func (c catalog) Find(id string) (profile.Spec, bool) {
	spec, ok := c[id]
	return spec, ok
}

var shelf = catalog{
	"power.setPower": {ID: "power.setPower", RunsOn: profile.OnControlPlane, Relays: []profile.Where{profile.OnSite},
		Sends: []string{"driver.invoke"}, Timeout: 5 * time.Minute, Retries: 3, RetryDelay: time.Second,
		Check: func(with json.RawMessage) []fault.Issue {
			var in struct{ Action string }
			if json.Unmarshal(with, &in) != nil || in.Action == "" {
				return []fault.Issue{{Path: "action", Message: "is needed"}}
			}
			return nil
		}},
	"boot.entry": {ID: "boot.entry", RunsOn: profile.OnControlPlane, Timeout: time.Minute, Cleanup: &profile.Step{Use: "boot.clear"}},
	"boot.clear": {ID: "boot.clear", RunsOn: profile.OnControlPlane, Timeout: time.Minute},
	"boot.kexec": {ID: "boot.kexec", RunsOn: profile.OnRamdisk, Command: "boot.kexec", Timeout: time.Minute, Rejoin: true},
	"disk.wipe":  {ID: "disk.wipe", RunsOn: profile.OnRamdisk, Command: "disk.wipe", Timeout: time.Hour},
}

func resolve(t *testing.T, steps string) ([]profile.Resolved, []fault.Issue) {
	t.Helper()
	doc, err := profile.Parse([]byte(`{"id": "x", "version": 1, "target": "metal", "drivers": {"bios": "ipmi"}, ` + steps + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return profile.Resolve(doc, shelf, map[string]string{"power": "redfish", "bios": "redfish", "raid": "storcli"})
}

func TestResolve(t *testing.T) {
	got, issues := resolve(t, `"steps": [
		{"use": "boot.entry"},
		{"use": "boot.kexec", "on": "ramdisk", "onFailure": {"use": "power.setPower", "on": "site", "with": {"action": "reset"}}},
		{"use": "bios.set", "on": "site", "with": {"a": 1}},
		{"use": "acme.fan", "fallback": "raid.clear", "on": "site", "timeout": "1m", "retries": 1, "onFailure": "continue"},
		{"use": "disk.wipe", "id": "wipe", "when": "a", "await": "rejoin"}
	], "cleanup": [{"use": "power.setPower", "with": {"action": "off"}, "retries": 7}]`)
	if len(issues) > 0 {
		t.Fatal(issues)
	}
	none := json.RawMessage("{}")
	relay := []string{"driver.invoke"}
	want := []profile.Resolved{
		{ID: "1-boot.entry", Phase: "main", Action: "boot.entry", RunsOn: "control-plane", With: none, Timeout: time.Minute, Policy: "fail"},
		{ID: "2-boot.kexec", Phase: "main", Action: "boot.kexec", RunsOn: "ramdisk", Command: "boot.kexec", With: none,
			Timeout: time.Minute, Policy: "fail", OnFailureStep: "2-boot.kexec-on-failure", Rejoin: true},
		{ID: "3-bios.set", Phase: "main", Action: "bios.set", RunsOn: "site", Command: "driver.invoke", Driver: "ipmi",
			With: json.RawMessage(`{"a":1}`), Timeout: 10 * time.Minute, Policy: "fail"},
		{ID: "4-acme.fan", Phase: "main", Action: "raid.clear", RunsOn: "site", Command: "driver.invoke", Driver: "storcli",
			With: none, Timeout: time.Minute, Retries: 1, Policy: "continue"},
		{ID: "wipe", Phase: "main", Action: "disk.wipe", RunsOn: "ramdisk", Command: "disk.wipe", With: none, When: "a",
			Timeout: time.Hour, Policy: "fail", Rejoin: true},
		{ID: "2-boot.kexec-on-failure", Phase: "on-failure", Action: "power.setPower", RunsOn: "control-plane", Sends: relay,
			With: json.RawMessage(`{"action":"reset"}`), Timeout: 5 * time.Minute, Retries: 3, RetryDelay: time.Second,
			Policy: "fail", ArmedBy: "2-boot.kexec"},
		{ID: "cleanup-1-power.setPower", Phase: "cleanup", Action: "power.setPower", RunsOn: "control-plane", Sends: relay,
			With: json.RawMessage(`{"action":"off"}`), Timeout: 5 * time.Minute, Retries: 7, RetryDelay: time.Second, Policy: "fail"},
		{ID: "1-boot.entry-cleanup", Phase: "cleanup", Action: "boot.clear", RunsOn: "control-plane", With: none,
			Timeout: time.Minute, Policy: "fail", ArmedBy: "1-boot.entry"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestWhatDoesNotResolve(t *testing.T) {
	_, issues := resolve(t, `"steps": [
		{"use": "acme.fan"},
		{"use": "bios.set"},
		{"use": "bios.set", "on": "control-plane"},
		{"use": "acme.fan", "fallback": "acme.other", "on": "site"},
		{"use": "firmware.flash", "on": "node"},
		{"use": "disk.wipe", "on": "site"},
		{"use": "power.setPower", "on": "ramdisk", "with": {}},
		{"use": "disk.wipe", "with": {"method": "quick"}},
		{"use": "boot.clear", "await": "rejoin"},
		{"use": "boot.clear", "onFailure": {"use": "acme.fan"}}
	], "cleanup": [{"use": "acme.fan"}]`)
	want := []string{
		"steps[0].use", "steps[1].use", "steps[2].use", "steps[3].use", "steps[4].use", "steps[5].on", "steps[6].on",
		"steps[6].with.action", "steps[7].with", "steps[8].await", "steps[9].onFailure.use", "cleanup[0].use",
	}
	paths := make([]string, len(issues))
	for i, issue := range issues {
		paths[i] = issue.Path
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Fatalf("%s\n%v", diff, issues)
	}
}

// An id that was given stays with its step, whatever would be derived for another one.
func TestIDsAreUnique(t *testing.T) {
	got, issues := resolve(t, `"steps": [
		{"use": "boot.clear"}, {"use": "boot.clear", "id": "1-boot.clear"}, {"use": "boot.entry", "onFailure": {"use": "boot.clear", "id": "1-boot.clear-2"}}
	]`)
	if len(issues) > 0 {
		t.Fatal(issues)
	}
	var ids []string
	for _, s := range got {
		if slices.Contains(ids, s.ID) {
			t.Fatalf("%s stands twice in %v", s.ID, got)
		}
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"1-boot.clear-3", "1-boot.clear", "3-boot.entry", "1-boot.clear-2", "3-boot.entry-cleanup"}, ids); diff != "" {
		t.Fatal(diff)
	}
}

func TestAProfileThatCleansUpAnywayDoesItOnce(t *testing.T) {
	got, _ := resolve(t, `"steps": [{"use": "boot.entry"}], "cleanup": [{"use": "boot.clear", "with": {}}]`)
	if len(got) != 2 {
		t.Fatalf("got %+v", got)
	}
	got, _ = resolve(t, `"steps": [{"use": "boot.entry"}], "cleanup": [{"use": "boot.clear", "when": "a"}]`)
	if len(got) != 3 {
		t.Fatalf("a cleanup that may be skipped stands for the step's own: %+v", got)
	}
}
