package profile_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
)

const whole = `{
  "id": "ubuntu-24.04-autoinstall", "version": 3, "description": "x", "public": true, "target": "metal", "role": "dedicated",
  "image": "ubuntu@24.04", "drivers": {"power": "redfish"}, "userData": {"kind": "ignition", "template": "a.yaml"},
  "hostConfig": [{"name": "hugepages", "settings": {"count": 4}, "when": "gpu"}],
  "steps": [
    {"use": "autoinstall.renderIso", "retries": 2, "retryDelay": "90s"},
    {"use": "boot.kexec", "id": "start", "on": "ramdisk", "await": "rejoin", "timeout": "1h30m", "when": "!skip && rack=7",
     "onFailure": {"use": "power.setPower", "on": "site", "with": {"action": "reset"}}},
    {"use": "acme.fan", "fallback": "management.getSensors", "on": "site", "onFailure": "continue"}
  ],
  "cleanup": [{"use": "boot.clear"}]
}`

func TestParse(t *testing.T) {
	doc, err := profile.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	start := doc.Steps[1]
	if start.Timeout != profile.Duration(90*time.Minute) || start.OnFailure.Step.Use != "power.setPower" {
		t.Fatalf("got %+v", start)
	}
	if doc.Steps[2].OnFailure.Policy != profile.PolicyContinue || doc.Steps[0].RetryDelay.String() != "1m30s" {
		t.Fatalf("got %+v", doc.Steps)
	}
	// What is stored reads as the same again, and has the same digest.
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var stored profile.Document
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	again, err := profile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, again); diff != "" {
		t.Fatal(diff)
	}
	first, err1 := profile.Digest(doc)
	second, err2 := profile.Digest(stored)
	if err1 != nil || err2 != nil || first != second {
		t.Fatalf("%s and %s: %v, %v", first, second, err1, err2)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]string{
		"90s": "1m30s", "5m": "5m", "1h30m": "1h30m", "2h": "2h", "3600s": "1h", "0s": "0s", "24h": "24h", "1h5s": "1h0m5s",
	} {
		d, err := profile.ParseDuration(text)
		if err != nil || d.String() != want {
			t.Errorf("%s: got %s, %v", text, d, err)
		}
		if again, err := profile.ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%s does not read as itself: %v", d, err)
		}
	}
	for _, text := range []string{"", "5", "-5m", "1.5h", "100ms", "1d", "m", "5m1h", "9999999h", "1h "} {
		if d, err := profile.ParseDuration(text); err == nil {
			t.Errorf("%q reads as %s", text, d)
		}
	}
}

func TestRefusals(t *testing.T) {
	const head = `{"id": "x", "version": 1, "target": "metal", `
	tests := map[string]struct {
		text  string
		paths []string
	}{
		"not JSON":             {`{"id"`, []string{""}},
		"not an object":        {`[]`, []string{"", "id", "version", "target"}},
		"unknown fields":       {head + `"colour": 1, "userData": {"kind": "ignition", "body": ""}, "steps": [{"use": "a.b", "run": "x"}]}`, []string{"colour", "steps[0].run", "userData.body"}},
		"a field twice":        {head + `"role": "host", "role": "dedicated"}`, []string{"role"}},
		"null":                 {head + `"steps": null, "image": null}`, []string{"image", "steps"}},
		"every issue at once":  {`{"id": "X", "version": 0, "target": "moon", "role": "king", "image": "x", "steps": [{"use": "A B"}]}`, []string{"id", "version", "target", "role", "image", "steps[0].use"}},
		"a version as text":    {`{"id": "x", "version": "1", "target": "metal"}`, []string{"version"}},
		"a broken version":     {`{"id": "x", "version": 1.5, "target": "metal"}`, []string{"version"}},
		"steps of an adopt":    {`{"id": "x", "version": 1, "target": "adopt", "image": "a@1", "userData": {"kind": "k"}, "steps": [{"use": "a.b"}], "cleanup": [{"use": "a.b"}]}`, []string{"image", "userData", "steps", "cleanup"}},
		"drivers of instance":  {`{"id": "x", "version": 1, "target": "instance", "role": "host", "drivers": {"power": "redfish"}}`, []string{"drivers", "role"}},
		"an unknown concern":   {head + `"drivers": {"coffee": "redfish", "power": ""}}`, []string{"drivers.coffee", "drivers.power"}},
		"durations":            {head + `"steps": [{"use": "a.b", "timeout": "1d", "retryDelay": 5}, {"use": "a.b", "timeout": "200h", "retryDelay": "25h"}]}`, []string{"steps[0].retryDelay", "steps[0].timeout", "steps[1].timeout", "steps[1].retryDelay"}},
		"retries":              {head + `"steps": [{"use": "a.b", "retries": 101}, {"use": "a.b", "retries": -1}]}`, []string{"steps[0].retries", "steps[1].retries"}},
		"when":                 {head + `"steps": [{"use": "a.b", "when": "a ||"}], "hostConfig": [{"name": "u", "when": "="}]}`, []string{"hostConfig[0].when", "steps[0].when"}},
		"an id twice":          {head + `"steps": [{"use": "a.b", "id": "x", "onFailure": {"use": "a.b", "id": "x"}}], "cleanup": [{"use": "a.b", "id": "x"}]}`, []string{"steps[0].onFailure.id", "cleanup[0].id"}},
		"an id of other signs": {head + `"steps": [{"use": "a.b", "id": "x#2"}]}`, []string{"steps[0].id"}},
		"on":                   {head + `"steps": [{"use": "a.b", "on": "moon"}]}`, []string{"steps[0].on"}},
		"with":                 {head + `"steps": [{"use": "a.b", "with": [1]}, {"use": "a.b", "with": null}]}`, []string{"steps[0].with", "steps[1].with"}},
		"await":                {head + `"steps": [{"use": "a.b", "await": "godot"}]}`, []string{"steps[0].await"}},
		"a policy":             {head + `"steps": [{"use": "a.b", "onFailure": "cry"}, {"use": "a.b", "onFailure": 7}]}`, []string{"steps[1].onFailure", "steps[0].onFailure"}},
		"failures of failures": {head + `"steps": [{"use": "a.b", "onFailure": {"use": "a.b", "onFailure": {"use": "a.b"}}}]}`, []string{"steps[0].onFailure.onFailure"}},
		"cleanup with failure": {head + `"cleanup": [{"use": "a.b", "onFailure": {"use": "a.b"}}]}`, []string{"cleanup[0].onFailure"}},
		"too many steps":       {head + `"steps": [` + strings.Repeat(`{"use": "a.b"},`, 512) + `{"use": "a.b"}]}`, []string{"steps"}},
		"too long":             {strings.Repeat(" ", profile.MaxDocument) + "{}", []string{""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := profile.Parse([]byte(tt.text))
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.InvalidConfig {
				t.Fatalf("got %v", err)
			}
			paths := make([]string, len(f.Issues))
			for i, issue := range f.Issues {
				paths[i] = issue.Path
				if issue.Message == "" {
					t.Errorf("%s: says nothing", issue.Path)
				}
			}
			if diff := cmp.Diff(tt.paths, paths); diff != "" {
				t.Fatalf("%s\n%v", diff, err)
			}
			if f.Details["path"] != tt.paths[0] {
				t.Fatalf("details.path is %v", f.Details["path"])
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"id":"x","version":1,"target":"adopt"}`))
	f.Add([]byte(`{"steps":[{"use":"a.b","onFailure":{"use":"c.d"}}],"id":"x","id":"y"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := profile.Parse(text)
		if err != nil {
			if fault.CodeOf(err) != fault.InvalidConfig {
				t.Fatalf("got %v", err)
			}
			return
		}
		stored, err := json.Marshal(doc)
		if err != nil {
			t.Fatalf("a profile that was taken can't be written: %v", err)
		}
		again, err := profile.Parse(stored)
		if err != nil {
			t.Fatalf("a stored profile is refused: %v\n%s", err, stored)
		}
		first, _ := profile.Digest(doc)
		if second, _ := profile.Digest(again); first != second {
			t.Fatalf("%s became %s", first, second)
		}
	})
}
