package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// calls has every method of the client that asks the API for something, with every parameter that it can send.
var calls = map[string]func(context.Context, *Client){
	"Enroll": func(ctx context.Context, c *Client) { _, _ = c.Enroll(ctx, contract.Enrollment{}, every...) },
	"Nodes": func(ctx context.Context, c *Client) {
		yes := true
		take(c.Nodes(ctx, NodeFilter{
			Tenant: "t", Site: "s", Pool: "p", States: []string{"ready"}, Labels: []string{"k=v"}, NamePrefix: "n",
			Maintenance: &yes, Cordoned: &yes, PageSize: 10,
		}, every...))
	},
	"GetNode": func(ctx context.Context, c *Client) { _, _ = c.GetNode(ctx, "1", every...) },
	"NodeAt":  func(ctx context.Context, c *Client) { _, _ = c.NodeAt(ctx, "1", "7", every...) },
	"History": func(ctx context.Context, c *Client) { take(c.History(ctx, "1", true, every...)) },
	"Replay":  func(ctx context.Context, c *Client) { _, _ = c.Replay(ctx, "1", "7", every...) },
	"Manage":  func(ctx context.Context, c *Client) { _, _ = c.Manage(ctx, "1", every...) },
	"Inspect": func(ctx context.Context, c *Client) { _, _ = c.Inspect(ctx, "1", every...) },
	"Provide": func(ctx context.Context, c *Client) { _, _ = c.Provide(ctx, "1", every...) },
	"Deploy":  func(ctx context.Context, c *Client) { _, _ = c.Deploy(ctx, "1", contract.Deploy{}, every...) },
	"Undeploy": func(ctx context.Context, c *Client) {
		_, _ = c.Undeploy(ctx, "1", contract.Wipe{Method: "quick"}, every...)
	},
	"Rescue":   func(ctx context.Context, c *Client) { _, _ = c.Rescue(ctx, "1", every...) },
	"Unrescue": func(ctx context.Context, c *Client) { _, _ = c.Unrescue(ctx, "1", every...) },
	"Recover":  func(ctx context.Context, c *Client) { _, _ = c.Recover(ctx, "1", every...) },
	"Abort":    func(ctx context.Context, c *Client) { _, _ = c.Abort(ctx, "1", contract.Reason{Reason: "r"}, every...) },
	"Retire": func(ctx context.Context, c *Client) {
		_, _ = c.Retire(ctx, "1", contract.Wipe{Method: "quick"}, every...)
	},
	"Abandon": func(ctx context.Context, c *Client) {
		_, _ = c.Abandon(ctx, "1", contract.Reason{Reason: "r"}, every...)
	},
	"Power": func(ctx context.Context, c *Client) { _, _ = c.Power(ctx, "1", contract.Power{}, every...) },
	"SetMaintenance": func(ctx context.Context, c *Client) {
		_, _ = c.SetMaintenance(ctx, "1", contract.Maintenance{Reason: "r"}, every...)
	},
	"Cordon": func(ctx context.Context, c *Client) {
		_, _ = c.Cordon(ctx, "1", contract.Reason{Reason: "r"}, every...)
	},
	"SetBMC": func(ctx context.Context, c *Client) {
		_, _ = c.SetBMC(ctx, "1", contract.BMCChange{
			Address: "a", Credentials: &contract.Credentials{Username: "u", Password: "p"},
			TLS: &contract.TLSPolicy{Mode: "pinned", Fingerprint: "f", CA: "c"},
		}, every...)
	},
	"TrustBMC": func(ctx context.Context, c *Client) {
		_, _ = c.TrustBMC(ctx, "1", contract.Certificate{Fingerprint: "1"}, every...)
	},
	"Uncordon":     func(ctx context.Context, c *Client) { _, _ = c.Uncordon(ctx, "1", every...) },
	"CreateTenant": func(ctx context.Context, c *Client) { _, _ = c.CreateTenant(ctx, contract.NewTenant{}, every...) },
	"Tenants":      func(ctx context.Context, c *Client) { take(c.Tenants(ctx, every...)) },
	"GetTenant":    func(ctx context.Context, c *Client) { _, _ = c.GetTenant(ctx, "1", every...) },
	"ChangeTenantPolicy": func(ctx context.Context, c *Client) {
		_, _ = c.ChangeTenantPolicy(ctx, "1", contract.TenantPolicy{}, every...)
	},
	"CreateSite": func(ctx context.Context, c *Client) { _, _ = c.CreateSite(ctx, contract.NewSite{}, every...) },
	"Sites":      func(ctx context.Context, c *Client) { take(c.Sites(ctx, "t", every...)) },
	"GetSite":    func(ctx context.Context, c *Client) { _, _ = c.GetSite(ctx, "1", every...) },
	"ChangeSitePolicy": func(ctx context.Context, c *Client) {
		_, _ = c.ChangeSitePolicy(ctx, "1", contract.SitePolicy{}, every...)
	},
	"CreatePool": func(ctx context.Context, c *Client) { _, _ = c.CreatePool(ctx, contract.NewPool{}, every...) },
	"Pools":      func(ctx context.Context, c *Client) { take(c.Pools(ctx, "t", "s", every...)) },
	"GetPool":    func(ctx context.Context, c *Client) { _, _ = c.GetPool(ctx, "1", every...) },
	"ChangePoolPolicy": func(ctx context.Context, c *Client) {
		_, _ = c.ChangePoolPolicy(ctx, "1", contract.PoolPolicy{}, every...)
	},
	"WhoAmI": func(ctx context.Context, c *Client) { _, _ = c.WhoAmI(ctx, every...) },
	"CreatePrincipal": func(ctx context.Context, c *Client) {
		_, _ = c.CreatePrincipal(ctx, contract.NewPrincipal{}, every...)
	},
	"Principals":       func(ctx context.Context, c *Client) { take(c.Principals(ctx, "t", every...)) },
	"GetPrincipal":     func(ctx context.Context, c *Client) { _, _ = c.GetPrincipal(ctx, "1", every...) },
	"EnablePrincipal":  func(ctx context.Context, c *Client) { _, _ = c.EnablePrincipal(ctx, "1", every...) },
	"DisablePrincipal": func(ctx context.Context, c *Client) { _, _ = c.DisablePrincipal(ctx, "1", every...) },
	"IssueToken": func(ctx context.Context, c *Client) {
		_, _ = c.IssueToken(ctx, "1", contract.NewToken{Note: "n", ExpiresInSeconds: 1}, every...)
	},
	"RevokeToken": func(ctx context.Context, c *Client) { _, _ = c.RevokeToken(ctx, "1", "2", every...) },
	"Bind":        func(ctx context.Context, c *Client) { _, _ = c.Bind(ctx, "1", contract.NewBinding{}, every...) },
	"Unbind":      func(ctx context.Context, c *Client) { _, _ = c.Unbind(ctx, "1", "2", every...) },
	"AuditHead":   func(ctx context.Context, c *Client) { _, _ = c.AuditHead(ctx, every...) },
	"AuditLog":    func(ctx context.Context, c *Client) { take(c.AuditLog(ctx, 7, every...)) },
	"AuditLogUntil": func(ctx context.Context, c *Client) {
		take(c.AuditLogUntil(ctx, 7, &LogEnd{}, every...))
	},
	"Doctor": func(ctx context.Context, c *Client) { take(c.Doctor(ctx, every...)) },
	"Follow": func(ctx context.Context, c *Client) {
		after := uint64(7)
		take(c.Follow(ctx, Feed{After: &after, Tenant: "t", Subject: "s", Node: "n", Types: []string{"a", "b"}}, every...))
	},
	"CreateProfile": func(ctx context.Context, c *Client) {
		_, _ = c.CreateProfile(ctx, "t", json.RawMessage("{}"), every...)
	},
	"Profiles":   func(ctx context.Context, c *Client) { take(c.Profiles(ctx, "t", "p", every...)) },
	"GetProfile": func(ctx context.Context, c *Client) { _, _ = c.GetProfile(ctx, "1", 2, "t", every...) },
	"ValidateProfile": func(ctx context.Context, c *Client) {
		_, _ = c.ValidateProfile(ctx, contract.TryProfile{}, every...)
	},
	"RenderProfile": func(ctx context.Context, c *Client) {
		_, _ = c.RenderProfile(ctx, contract.TryProfile{}, every...)
	},
	"Steps":         func(ctx context.Context, c *Client) { take(c.Steps(ctx, every...)) },
	"Attestation":   func(ctx context.Context, c *Client) { _, _ = c.Attestation(ctx, "1", every...) },
	"RegisterImage": func(ctx context.Context, c *Client) { _, _ = c.RegisterImage(ctx, contract.NewImage{}, every...) },
	"Images":        func(ctx context.Context, c *Client) { take(c.Images(ctx, "t", "n", true, every...)) },
	"GetImage":      func(ctx context.Context, c *Client) { _, _ = c.GetImage(ctx, "1", every...) },
	"WithdrawImage": func(ctx context.Context, c *Client) {
		_, _ = c.WithdrawImage(ctx, "1", contract.Reason{Reason: "r"}, every...)
	},
	"Workflows": func(ctx context.Context, c *Client) {
		take(c.Workflows(ctx, WorkflowFilter{Tenant: "t", Node: "n", Profile: "p", States: []string{"failed"}, PageSize: 10}, every...))
	},
	"NodeWorkflows": func(ctx context.Context, c *Client) { take(c.NodeWorkflows(ctx, "1", []string{"failed"}, every...)) },
	"GetWorkflow":   func(ctx context.Context, c *Client) { _, _ = c.GetWorkflow(ctx, "1", every...) },
	"AbortWorkflow": func(ctx context.Context, c *Client) {
		_, _ = c.AbortWorkflow(ctx, "1", contract.Reason{Reason: "r"}, every...)
	},
	"RetryWorkflow": func(ctx context.Context, c *Client) {
		_, _ = c.RetryWorkflow(ctx, "1", contract.Retry{FromStep: "s"}, every...)
	},
	"PauseWorkflow":  func(ctx context.Context, c *Client) { _, _ = c.PauseWorkflow(ctx, "1", every...) },
	"ResumeWorkflow": func(ctx context.Context, c *Client) { _, _ = c.ResumeWorkflow(ctx, "1", every...) },
	"CreateJoinToken": func(ctx context.Context, c *Client) {
		_, _ = c.CreateJoinToken(ctx, contract.NewJoinToken{}, every...)
	},
	"GetJoinToken": func(ctx context.Context, c *Client) { _, _ = c.GetJoinToken(ctx, "1", every...) },
	"JoinTokens":   func(ctx context.Context, c *Client) { take(c.JoinTokens(ctx, "t", "s", "n", every...)) },
	"RevokeJoinToken": func(ctx context.Context, c *Client) {
		_, _ = c.RevokeJoinToken(ctx, "1", contract.Reason{Reason: "r"}, every...)
	},
	"GetAgent": func(ctx context.Context, c *Client) { _, _ = c.GetAgent(ctx, "1", every...) },
	"Agents":   func(ctx context.Context, c *Client) { take(c.Agents(ctx, "s", "n", "site", every...)) },
	"RevokeAgent": func(ctx context.Context, c *Client) {
		_, _ = c.RevokeAgent(ctx, "1", contract.Reason{Reason: "r"}, every...)
	},
	"Position": func(ctx context.Context, c *Client) { _, _ = c.Position(ctx, every...) },
}

var every = []Option{IfMatch(3), IdempotencyKey("key"), AtPosition(7), CorrelationID("c")}

// take asks for the first item of a list.
func take[T any](items func(func(T, error) bool)) { items(func(T, error) bool { return false }) }

// unsent are the parameters of the document that the client leaves out, and why.
var unsent = map[string]string{
	"minPosition": "the header Metal-Position says the same",
	"fields":      "answers are decoded as a whole",
	"cursor":      "sent for the second page",
	"limit":       "left at the most, but for machines",
	"after":       "the header Last-Event-ID says the same",
}

// sent is one request as it came.
type sent struct {
	method, path string
	query        []string
	header       http.Header
	body         map[string]json.RawMessage
}

func TestClientAndDocumentAgree(t *testing.T) {
	document := readDocument(t)
	used := map[string]bool{}
	for name, ask := range calls {
		for _, s := range record(t, ask) {
			key, op := document.find(s.method, s.path)
			if op == nil {
				t.Errorf("%s: %s %s is not in the document", name, s.method, s.path)
				continue
			}
			used[key] = true
			op.check(t, name, document, s)
		}
	}
	for key, op := range document.operations {
		if !used[key] {
			t.Errorf("no method of the client asks for %s", key)
		}
		for _, p := range op.unused() {
			if unsent[p] == "" {
				t.Errorf("%s: the client cannot send %s", key, p)
			}
		}
	}
}

// A method that asks for something and is not in the table would go unchecked.
func TestEveryMethodIsInTheTable(t *testing.T) {
	own := reflect.TypeFor[*Client]()
	var have, want []string
	for i := range own.NumMethod() {
		if name := own.Method(i).Name; name != "Close" {
			have = append(have, name)
		}
	}
	for name := range calls {
		want = append(want, name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// record answers nothing useful and notes what was asked.
func record(t *testing.T, ask func(context.Context, *Client)) []sent {
	t.Helper()
	var mu sync.Mutex
	var all []sent
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		s := sent{method: r.Method, path: r.URL.Path, header: r.Header}
		for name := range r.URL.Query() {
			s.query = append(s.query, name)
		}
		_ = json.NewDecoder(r.Body).Decode(&s.body) // none is none
		all = append(all, s)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	c, err := New(Options{URL: server.URL, Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask(t.Context(), c)
	if len(all) == 0 {
		t.Error("nothing was asked")
	}
	return all
}

// openAPI is what the test reads of an OpenAPI 3.1 document.
type openAPI struct {
	Paths      map[string]map[string]*documented `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		} `json:"schemas"`
	} `json:"components"`

	operations map[string]*documented
	patterns   map[string]*regexp.Regexp
}

// documented is one operation of the document.
type documented struct {
	Parameters []struct {
		Name string `json:"name"`
		In   string `json:"in"`
	} `json:"parameters"`
	RequestBody struct {
		Content map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			} `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`

	seen map[string]bool
}

func readDocument(t *testing.T) *openAPI {
	t.Helper()
	raw, err := os.ReadFile("../../../schema/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &openAPI{operations: map[string]*documented{}, patterns: map[string]*regexp.Regexp{}}
	if err := json.Unmarshal(raw, d); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\\\{[^}]+\\\}`)
	for path, methods := range d.Paths {
		for method, op := range methods {
			key := strings.ToUpper(method) + " " + path
			op.seen = map[string]bool{}
			d.operations[key] = op
			d.patterns[key] = regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(key), `[^/]+`) + "$")
		}
	}
	if len(d.operations) == 0 {
		t.Fatal("the document has no operation")
	}
	return d
}

func (d *openAPI) find(method, path string) (string, *documented) {
	for key, pattern := range d.patterns {
		if pattern.MatchString(method + " " + path) {
			return key, d.operations[key]
		}
	}
	return "", nil
}

// check compares a request with its operation: no parameter and no field that is not in the document, and every field
// that it needs.
func (op *documented) check(t *testing.T, name string, d *openAPI, s sent) {
	t.Helper()
	for _, q := range s.query {
		if !op.has("query", q) {
			t.Errorf("%s: the document has no query parameter %s", name, q)
		}
		op.seen[q] = true
	}
	for _, h := range []string{"If-Match", contract.HeaderIdempotencyKey, contract.HeaderPosition, "Last-Event-ID"} {
		op.seen[h] = op.seen[h] || s.header.Get(h) != ""
	}
	body, ok := op.RequestBody.Content[jsonType]
	if !ok {
		if s.body != nil {
			t.Errorf("%s: the document has no body", name)
		}
		return
	}
	schema := d.Components.Schemas[body.Schema.Ref[strings.LastIndexByte(body.Schema.Ref, '/')+1:]]
	for field := range s.body {
		if schema.Properties[field] == nil {
			t.Errorf("%s: the document's body has no field %s", name, field)
		}
	}
	for _, field := range schema.Required {
		if s.body[field] == nil {
			t.Errorf("%s: the document's body needs %s", name, field)
		}
	}
}

func (op *documented) has(in, name string) bool {
	for _, p := range op.Parameters {
		if p.In == in && p.Name == name {
			return true
		}
	}
	return false
}

// unused lists the parameters of query and header that no request had.
func (op *documented) unused() []string {
	var names []string
	for _, p := range op.Parameters {
		if p.In != "path" && !op.seen[p.Name] {
			names = append(names, p.Name)
		}
	}
	return names
}
