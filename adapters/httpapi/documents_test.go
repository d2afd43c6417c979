package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections/metalview"
)

var update = flag.Bool("update", false, "write schema/openapi.json")

const openAPIFile = "../../schema/openapi.json"

func TestOpenAPIIsCommitted(t *testing.T) {
	w := start(t)
	got := must(w.api.OpenAPI())(t)
	if *update {
		if err := os.WriteFile(openAPIFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := must(os.ReadFile(openAPIFile))(t)
	if !bytes.Equal(got, want) {
		t.Fatalf("schema/openapi.json is old; run go test ./adapters/httpapi -run OpenAPI -update\n%s",
			cmp.Diff(string(want), string(got)))
	}
	if served := w.get("/openapi.json").want(200).body; !bytes.Equal(served, got) {
		t.Fatal("what is served is not what is committed")
	}
}

// Every operation says what it gives and what a problem looks like, and no schema is left without a description of its
// errors.
func TestOpenAPIIsComplete(t *testing.T) {
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID, Summary string
			Responses            map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(must(os.ReadFile(openAPIFile))(t), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || len(doc.Paths) < 30 {
		t.Fatalf("version %s, %d paths", doc.OpenAPI, len(doc.Paths))
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.OperationID == "" || op.Summary == "" || len(op.Responses["default"].Content[contract.ProblemType].(map[string]any)) == 0 {
				t.Errorf("%s %s: %+v", method, path, op)
			}
		}
	}
}

func TestDocsNeedNoNetworkAndNoScript(t *testing.T) {
	w := start(t)
	page := w.get("/docs", with("Authorization", "")).want(200)
	text := string(page.body)
	for _, want := range []string{"/v1/nodes/{id}/deploy", "INVALID_STATE", "Enrollment"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not tell of %s", want)
		}
	}
	if outside := regexp.MustCompile(`(?i)<script|https?://|src=`).FindString(text); outside != "" {
		t.Errorf("the page asks for %q", outside)
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") {
		t.Errorf("policy %q", csp)
	}
}

// The contract of a node is the view, field for field.
func TestContractOfNode(t *testing.T) {
	state := node.State{
		ID: must(id.Parse[id.Node]("node_01k00000000000000000000000"))(t), Name: "n", Labels: map[string]string{"a": "b"},
		MACs: []string{"02:00:00:00:00:0a"}, Provision: node.Failed, Role: node.RoleHost, Power: node.PowerOn,
		PowerAction: node.ActionOff, Maintenance: &node.Mark{Reason: "m"}, Cordon: &node.Mark{Reason: "c"},
		BMC:             &node.BMC{Driver: "redfish", Address: "https://b", Credentials: "secret:x", TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: "f"}},
		HardwareProfile: "h", Profile: &node.Profile{ID: "p", Version: 1}, Workflow: &node.Workflow{}, RescueUp: true,
		Unrescuing: true, FailedFrom: node.Ready, LastError: &node.Failure{Code: "X", Message: "y"}, ReleaseUnverified: true,
		Hardware: node.Inventories{InBand: &node.Hardware{Serial: "s"}},
	}
	state.Workflow.ID = must(id.Parse[id.Workflow]("wf_01k00000000000000000000000"))(t)
	view := must(json.Marshal(metalview.Of(state, 3, 4, time.Unix(1, 0))))(t)
	seen := into[contract.Node](&reply{t: t, body: view})
	if diff := cmp.Diff(string(view), string(must(json.Marshal(seen))(t))); diff != "" {
		t.Fatal(diff)
	}
}

func TestHealth(t *testing.T) {
	w := start(t)
	none := with("Authorization", "")
	w.get("/healthz", none).want(200)
	w.get("/readyz", none).want(200)
	w.get("/nowhere", none).problem(http.StatusNotFound, "NOT_FOUND")
	w.send("PATCH", "/v1/nodes", "{}").problem(http.StatusMethodNotAllowed, "INVALID_INPUT")
	w.stopFeed()
	w.eventually("it is not ready without the feed", func() bool { return w.get("/readyz", none).status == 503 })
}

// Whoever asks for a document, which needs no token, costs no more than sending it.
func TestDocumentsAreMadeOnce(t *testing.T) {
	w := start(t)
	for _, path := range []string{"/openapi.json", "/docs"} {
		ask := func() {
			out := httptest.NewRecorder()
			if w.api.ServeHTTP(out, httptest.NewRequest(http.MethodGet, path, nil)); out.Code != http.StatusOK {
				t.Errorf("%s: %d", path, out.Code)
			}
		}
		if allocations := testing.AllocsPerRun(10, ask); allocations > 1000 {
			t.Errorf("%s: %v allocations", path, allocations)
		}
	}
}
