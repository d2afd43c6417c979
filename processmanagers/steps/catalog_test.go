package steps_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/processmanagers/steps"
)

// designed are the steps that the product promises.
var designed = []string{
	"bmc.identify", "bmc.verify", "boot.clear", "boot.entry", "boot.kexec", "burnin.cpu", "burnin.disk", "burnin.gpu",
	"burnin.memory", "certs.revoke", "deploy.deploy", "disk.wipe", "http.viaSite", "image.resolve", "inspect.hardware",
	"inspect.outOfBand", "management.getSensors", "management.setBootDevice", "media.eject", "media.insert",
	"metal.ensureRamdisk", "node.reboot", "power.setPower", "userdata.render", "wait.agentJoined", "wait.observed",
}

var catalog = sync.OnceValues(func() (*steps.Catalog, error) { return steps.NewCatalog(agentcommand.Kinds, steps.Shipped()) })

func shipped(t *testing.T) *steps.Catalog {
	t.Helper()
	c, err := catalog()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestShippedSteps(t *testing.T) {
	c := shipped(t)
	if diff := cmp.Diff(designed, c.IDs()); diff != "" {
		t.Errorf("steps (-designed +shipped):\n%s", diff)
	}
	var _ profile.Catalog = c
	for _, id := range c.IDs() {
		spec, _ := c.Find(id)
		var schema struct {
			Type       string
			Properties map[string]any
		}
		if err := json.Unmarshal(spec.Input, &schema); err != nil || schema.Type != "object" || schema.Properties == nil {
			t.Errorf("%s: input %s: %v", id, spec.Input, err)
		}
		if spec.Summary == "" {
			t.Errorf("%s says nothing to people", id)
		}
	}
	if _, known := c.Find("no.such"); known {
		t.Error("found a step that is not there")
	}
}

type sample struct {
	Name  string   `json:"name" enum:"a,b"`
	Count int      `json:"count,omitempty"`
	Disk  struct{} `json:"disk,omitzero"`
	Tags  []string `json:"tags,omitempty"`
}

func (s *sample) Check() []fault.Issue {
	if s.Count > 3 {
		return []fault.Issue{{Path: "count", Message: "at most 3"}}
	}
	return nil
}

func run(context.Context, *steps.Context, sample) (any, error) { return nil, nil }

func TestInputIsCheckedWithEveryIssueAndItsPath(t *testing.T) {
	spec := steps.Define(profile.Spec{ID: "x.y", Timeout: time.Second}, run).Spec
	for with, want := range map[string][]string{
		``:                                   {"name"},
		`{}`:                                 {"name"},
		`{"name":"a"}`:                       nil,
		`{"name":"c"}`:                       {"name"},
		`{"Name":"a"}`:                       {"name", "Name"}, // one spelling only
		`{"name":"a","count":4}`:             {"count"},
		`{"name":1,"count":"x","other":1}`:   {"name", "count", "other"},
		`{"name":"a","disk":{"serial":"1"}}`: {"disk"},
		`{"name":"a","tags":[1]}`:            {"tags"},
		`[]`:                                 {""},
		`nonsense`:                           {""},
		`{"name":"a"} {}`:                    {""},
	} {
		var got []string
		for _, issue := range spec.Check(json.RawMessage(with)) {
			got = append(got, issue.Path)
			if issue.Message == "" {
				t.Errorf("%s: %s is wrong, and nothing says why", with, issue.Path)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", with, diff)
		}
	}
	want := `{"additionalProperties":false,"properties":{"count":{"type":"integer"},` +
		`"disk":{"additionalProperties":false,"properties":{},"type":"object"},"name":{"enum":["a","b"],"type":"string"},` +
		`"tags":{"items":{"type":"string"},"type":"array"}},"required":["name"],"type":"object"}`
	if string(spec.Input) != want {
		t.Errorf("schema: %s", spec.Input)
	}
}

func TestInputsOfShippedSteps(t *testing.T) {
	c := shipped(t)
	for _, test := range []struct {
		step, with string
		wrong      string // path
	}{
		{"power.setPower", `{"action":"cycle"}`, ""},
		{"power.setPower", `{"action":"explode"}`, "action"},
		{"power.setPower", `{}`, "action"},
		{"management.setBootDevice", `{"device":"cd"}`, ""},
		{"management.setBootDevice", `{"device":"cd","httpUri":"http://x"}`, "httpUri"},
		{"metal.ensureRamdisk", ``, ""},
		{"metal.ensureRamdisk", `{"device":"disk"}`, "device"},
		{"media.insert", `{"fromStep":"autoinstall.renderIso"}`, ""},
		{"media.insert", `{"url":"http://a/b.iso","fromStep":"x"}`, "url"},
		{"media.insert", `{"url":"file:///etc/passwd"}`, "url"},
		{"media.insert", `{}`, "url"},
		{"burnin.memory", `{"bytes":-1}`, "bytes"},
		{"disk.wipe", `{"method":"secure-erase"}`, ""},
		{"disk.wipe", `{"method":"none"}`, "method"},
		{"deploy.deploy", `{"disk":{"serial":"S1","rotational":false},"readBack":true}`, ""},
		{"deploy.deploy", `{"disk":{"seriel":"S1"}}`, "disk"},
		{"wait.agentJoined", `{"role":"node"}`, ""},
		{"wait.agentJoined", `{"role":"site"}`, "role"},
		{"wait.observed", `{"power":"off"}`, ""},
		{"http.viaSite", `{"url":"https://10.0.0.1:50000/machine/version","poll":true}`, ""},
		{"http.viaSite", `{"url":"/x"}`, "url"},
		{"http.viaSite", `{"url":"https://10.0.0.1/","header":{"x":"secret:00000000-0000-0000-0000-0000000000aa"}}`, "header"},
		{"http.viaSite", `{"url":"https://10.0.0.1/","header":{"x":"\u0073ecret\u003a00000000-0000-0000-0000-0000000000aa"}}`, "header"},
		{"deploy.deploy", `{"disk":{"serial":"\u0073ecret:00000000-0000-0000-0000-0000000000aa"}}`, "disk"},
		{"http.viaSite", `{"url":"https://10.0.0.1/","body":"{\"is\": \"secret:x\"}"}`, "body"},
		{"bmc.verify", `{"x":1}`, "x"},
	} {
		spec, _ := c.Find(test.step)
		wrong := spec.Check(json.RawMessage(test.with))
		if test.wrong == "" && len(wrong) > 0 || test.wrong != "" && (len(wrong) != 1 || wrong[0].Path != test.wrong) {
			t.Errorf("%s %s: %v, want %q", test.step, test.with, wrong, test.wrong)
		}
	}
}

func TestDefinitionsThatAreNotWhole(t *testing.T) {
	control := func(change func(*steps.Step)) steps.Step {
		s := steps.Define(profile.Spec{ID: "x.y", Timeout: time.Second}, run)
		change(&s)
		return s
	}
	agent := func(change func(*steps.Step)) steps.Step {
		s := steps.Agent(profile.Spec{ID: "x.y", RunsOn: profile.OnRamdisk, Command: "disk.wipe", Timeout: time.Second}, steps.Hooks[sample]{})
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		list []steps.Step
		path string
	}{
		"whole":            {[]steps.Step{control(func(*steps.Step) {})}, ""},
		"whole agent step": {[]steps.Step{agent(func(*steps.Step) {})}, ""},
		"twice":            {[]steps.Step{control(func(*steps.Step) {}), agent(func(*steps.Step) {})}, "id"},
		"id":               {[]steps.Step{control(func(s *steps.Step) { s.ID = "noFamily" })}, "id"},
		"no timeout":       {[]steps.Step{control(func(s *steps.Step) { s.Timeout = 0 })}, "timeout"},
		"retries":          {[]steps.Step{control(func(s *steps.Step) { s.Retries = -1 })}, "retries"},
		"by hand":          {[]steps.Step{control(func(s *steps.Step) { s.Check = nil })}, "check"},
		"no code":          {[]steps.Step{control(func(s *steps.Step) { s.Run = nil })}, "run"},
		"command":          {[]steps.Step{control(func(s *steps.Step) { s.Command = "disk.wipe" })}, "command"},
		"unknown kind":     {[]steps.Step{control(func(s *steps.Step) { s.Sends = []string{"no.such"} })}, "sends"},
		"relays nothing":   {[]steps.Step{control(func(s *steps.Step) { s.Relays = []profile.Where{profile.OnSite} })}, "sends"},
		"relays to itself": {[]steps.Step{control(func(s *steps.Step) {
			s.Sends, s.Relays = []string{"disk.wipe"}, []profile.Where{profile.OnControlPlane}
		})}, "relays"},
		"agent sends":         {[]steps.Step{agent(func(s *steps.Step) { s.Sends = []string{"disk.wipe"} })}, "sends"},
		"agent relays":        {[]steps.Step{agent(func(s *steps.Step) { s.Relays = []profile.Where{profile.OnSite} })}, "relays"},
		"agent with code":     {[]steps.Step{agent(func(s *steps.Step) { s.Run = control(func(*steps.Step) {}).Run })}, "run"},
		"agent, unknown kind": {[]steps.Step{agent(func(s *steps.Step) { s.Command = "no.such" })}, "command"},
		"agent elsewhere":     {[]steps.Step{agent(func(s *steps.Step) { s.RunsOn = "moon" })}, "runsOn"},
		"wrong agent":         {[]steps.Step{agent(func(s *steps.Step) { s.RunsOn = profile.OnNode })}, "runsOn"},
		"not awaited":         {[]steps.Step{agent(func(s *steps.Step) { s.Command = "boot.kexec" })}, "rejoin"},
		"cleanup": {[]steps.Step{control(func(s *steps.Step) {
			s.Cleanup = &profile.Step{Use: "no.such"}
		})}, "cleanup.use"},
	} {
		_, err := steps.NewCatalog(agentcommand.Kinds, test.list)
		var f *fault.Error
		switch {
		case test.path == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.path != "" && (!errors.As(err, &f) || f.Code != fault.InvalidConfig || f.Details["path"] != test.path):
			t.Errorf("%s: %v, want INVALID_CONFIG at %s", name, err, test.path)
		}
	}
}
