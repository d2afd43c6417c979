package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

func happened(types ...string) []contract.Event {
	events := make([]contract.Event, len(types))
	for i, t := range types {
		events[i] = contract.Event{Position: uint64(i + 1), Type: t, Schema: 1, Data: json.RawMessage(`{}`)}
	}
	return events
}

func TestTheChainBeginsAfterTheLastRest(t *testing.T) {
	const p = "node.provision."
	cases := map[string]struct {
		types []string
		want  int
	}{
		"nothing":             {nil, 0},
		"enrolling":           {[]string{"node.enrolled", p + "enrolling"}, 0},
		"on the way":          {[]string{"node.enrolled", p + "enrolling", p + "ready", p + "deploying"}, 3},
		"at rest":             {[]string{"node.enrolled", p + "enrolling", p + "ready", p + "deploying", p + "deployed"}, 3},
		"failed is no rest":   {[]string{p + "ready", p + "deploying", p + "failed", p + "releasing"}, 1},
		"marks are no moves":  {[]string{p + "ready", p + "deploying", p + "deployed", "node.cordon.set"}, 1},
		"a workflow is a way": {[]string{p + "ready", p + "deploying", p + "workflow"}, 1},
	}
	for name, c := range cases {
		if got := lastRest(happened(c.types...)); got != c.want {
			t.Errorf("%s: begins at %d, want %d", name, got, c.want)
		}
	}
}

func TestWhatCanBeDoneNext(t *testing.T) {
	const wf = "wf_01h455vb4pex5vsknk084sn02q"
	failed := func(by node.Verb) string {
		return `{"type":"node.provision.failed","data":{"from":"deploying","to":"failed","verb":"` + string(by) + `","workflowId":"` + wf + `"}}`
	}
	const (
		failing  = `{"type":"workflow.failed","data":{"status":"failed","error":{"code":"DRIVER_ERROR","details":{"reason":"timeout"}}}}`
		changed  = `{"type":"workflow.failed","data":{"status":"failed","error":{"code":"DRIVER_ERROR","details":{"details":{"reason":"certificate-changed"}}}}}`
		cordoned = `{"type":"node.cordon.set","data":{}}`
	)
	cases := map[string]struct {
		node contract.Node
		led  []string // events, as JSON
		want []whyNext
	}{
		"failed": {
			contract.Node{ID: "n", Provision: "failed", FailedFrom: "deploying"}, []string{failing, failed(node.VerbFail)},
			[]whyNext{
				{"retire", "retiring", "metalctl retire n"}, {"abandon", "retired", "metalctl abandon n"},
				{"recover", "releasing", "metalctl recover n"}, {"retry", "deploying", "metalctl workflow retry " + wf},
			},
		},
		"aborted": {
			contract.Node{ID: "n", Provision: "failed", FailedFrom: "deploying"}, []string{failed(node.VerbAbort)},
			[]whyNext{
				{"retire", "retiring", "metalctl retire n"}, {"abandon", "retired", "metalctl abandon n"},
				{"recover", "releasing", "metalctl recover n"},
			},
		},
		"another certificate": {
			contract.Node{ID: "n", Provision: "failed", FailedFrom: "deploying"}, []string{changed, failed(node.VerbFail), cordoned},
			[]whyNext{
				{"trust-bmc", "failed", "metalctl trust-bmc n --fingerprint SHA256"},
				{"retire", "retiring", "metalctl retire n"}, {"abandon", "retired", "metalctl abandon n"},
				{"recover", "releasing", "metalctl recover n"}, {"retry", "deploying", "metalctl workflow retry " + wf},
			},
		},
		"enrolling, nothing runs": {contract.Node{Provision: "enrolling"}, nil, []whyNext{}},
		"enrolling": {
			contract.Node{ID: "n", Provision: "enrolling", Workflow: wf}, nil, []whyNext{{"abort", "failed", "metalctl abort n"}},
		},
		"rescue, certificate trusted long ago": {
			contract.Node{ID: "n", Provision: "rescue"}, []string{changed},
			[]whyNext{{"undeploy", "releasing", "metalctl undeploy n"}, {"unrescue", "deployed", "metalctl unrescue n"}},
		},
		"retired": {contract.Node{Provision: "retired"}, nil, []whyNext{}},
	}
	for name, c := range cases {
		events := make([]contract.Event, len(c.led))
		for i, text := range c.led {
			if err := json.Unmarshal([]byte(text), &events[i]); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(c.want, next(c.node, events)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestEveryStateIsTold(t *testing.T) {
	for _, s := range node.States {
		told := now(contract.Node{
			Provision: string(s.State), Maintenance: true, MaintenanceReason: "r", FailedFrom: "deploying",
		})
		if !strings.Contains(told, s.Meaning) || !strings.Contains(told, `maintenance, because "r"`) {
			t.Errorf("%s: %s", s.State, told)
		}
	}
}

// Every event that this program decodes has a sentence of its own, not the words of its type.
func TestEveryEventHasASentence(t *testing.T) {
	samples, err := filepath.Glob("../../schema/events/*.v1.json")
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	told := 0
	for _, file := range samples {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e := contract.Event{Type: strings.TrimSuffix(filepath.Base(file), ".v1.json"), Schema: 1, Data: data}
		told++
		if got := sentence(e); got == plainWords(e.Type) {
			t.Errorf("%s: %q", e.Type, got)
		}
	}
	if told < 80 {
		t.Errorf("only %d of %d are told", told, len(samples))
	}
	if got := sentence(contract.Event{Type: "node.from.the.future", Schema: 9}); got != "node from the future" {
		t.Error(got)
	}
}

func TestFilterOfAWatchedList(t *testing.T) {
	yes, no := true, false
	n := contract.Node{
		Provision: "ready", Pool: "p", Site: "s", Tenant: "t", Name: "rack7-u1",
		Labels: map[string]string{"rack": "7"}, Cordoned: true,
	}
	cases := []struct {
		filter client.NodeFilter
		want   bool
	}{
		{client.NodeFilter{}, true},
		{client.NodeFilter{States: []string{"failed", "ready"}, Pool: "p", Site: "s", NamePrefix: "rack7"}, true},
		{client.NodeFilter{Tenant: "t"}, true},
		{client.NodeFilter{States: []string{"failed"}}, false},
		{client.NodeFilter{Labels: []string{"rack", "rack=7"}, Cordoned: &yes, Maintenance: &no}, true},
		{client.NodeFilter{Labels: []string{"rack=8"}}, false},
		{client.NodeFilter{Labels: []string{"row"}}, false},
		{client.NodeFilter{Cordoned: &no}, false},
		{client.NodeFilter{Pool: "q"}, false},
		{client.NodeFilter{NamePrefix: "rack8"}, false},
	}
	for _, c := range cases {
		if got := matches(c.filter, n); got != c.want {
			t.Errorf("%+v: %t", c.filter, got)
		}
	}
}

func TestDifferencesOfStates(t *testing.T) {
	got := differences(map[string]any{"a": 1.0, "b": "x", "c": true}, map[string]any{"b": "y", "c": true, "d": []any{1.0}})
	if diff := cmp.Diff([]string{"- a 1", `~ b "x" → "y"`, "+ d [1]"}, got); diff != "" {
		t.Error(diff)
	}
}
