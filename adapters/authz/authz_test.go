package authz_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
)

func bound(at principal.Scope, actions ...principal.Pattern) principal.Binding {
	return principal.Binding{ID: id.Of[id.Binding](uuid.Must(uuid.NewV7())), Actions: actions, Scope: at}
}

func actorWith(bindings ...principal.Binding) commands.Actor {
	return commands.Actor{Principal: id.Of[id.Principal](uuid.Must(uuid.NewV7())), Bindings: bindings}
}

var onNode = commands.Resource{
	Kind: commands.OnNode, Tenant: tenants[1], Site: sites[0], Pool: pools[0], Node: nodes[0],
}

func TestForbiddenNamesTheAction(t *testing.T) {
	actor := actorWith(bound(principal.Scope{Kind: principal.ScopePool, ID: pools[0].String()}, "compute:nodes:read"))
	err := must(authz.New()).Allow(actor, principal.NodesPower, onNode)
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Code != fault.Forbidden {
		t.Fatalf("got %v, want FORBIDDEN", err)
	}
	if got := refused.Details["action"]; got != "compute:nodes:power" {
		t.Errorf("details.action is %v", got)
	}
}

func TestTheControlPlaneItselfMayDoEverything(t *testing.T) {
	stop := authz.File{Name: "stop.cedar", Text: []byte(`forbid (principal, action, resource);`)}
	auth := must(authz.New(stop))
	for _, row := range principal.Actions {
		if err := auth.Allow(commands.Actor{System: true}, row.Action, onNode); err != nil {
			t.Errorf("%s: %v", row.Action, err)
		}
	}
}

// A change of bindings counts at once, whatever was compiled before.
func TestBindingsAreNeverStale(t *testing.T) {
	auth := must(authz.New())
	here := principal.Scope{Kind: principal.ScopeNode, ID: nodes[0].String()}
	reader, operator := bound(here, "compute:nodes:read"), bound(here, "compute:nodes:operate")
	actor := actorWith(reader, operator)
	widened := reader
	widened.Actions = []principal.Pattern{"compute:nodes:power"}
	steps := []struct {
		bindings []principal.Binding
		action   principal.Action
		want     fault.Code
	}{
		{[]principal.Binding{reader, operator}, principal.NodesOperate, ""},
		{[]principal.Binding{operator, reader}, principal.NodesOperate, ""},
		{[]principal.Binding{reader}, principal.NodesOperate, fault.Forbidden},
		{nil, principal.NodesRead, fault.NotFound},
		{[]principal.Binding{reader}, principal.NodesPower, fault.Forbidden},
		{[]principal.Binding{widened}, principal.NodesPower, ""},
	}
	for i, s := range steps {
		actor.Bindings = s.bindings
		if got := fault.CodeOf(auth.Allow(actor, s.action, onNode)); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
}

func TestOperatorPolicyForbids(t *testing.T) {
	auth := must(authz.New(authz.File{Name: "freeze.cedar", Text: []byte(fmt.Sprintf(`
		// No power actions in the pool of the month's end.
		forbid (principal, action == Action::"compute:nodes:power", resource in Pool::"%s");
	`, pools[0]))}))
	admin := actorWith(bound(principal.Scope{Kind: principal.ScopeTenant, ID: tenant.Root.String()}, "*"))
	elsewhere := onNode
	elsewhere.Pool = pools[1]
	for _, c := range []struct {
		action principal.Action
		on     commands.Resource
		want   fault.Code
	}{
		{principal.NodesPower, onNode, fault.Forbidden},
		{principal.NodesPower, elsewhere, ""},
		{principal.NodesOperate, onNode, ""},
		{principal.NodesRead, onNode, ""},
	} {
		if got := fault.CodeOf(auth.Allow(admin, c.action, c.on)); got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.action, c.on.Pool, got, c.want)
		}
	}
}

// Lists are filtered from bindings alone, so a policy never takes reading away.
func TestOperatorPolicyNeverHides(t *testing.T) {
	auth := must(authz.New(authz.File{Name: "all.cedar", Text: []byte(`forbid (principal, action, resource);`)}))
	admin := actorWith(bound(principal.Scope{Kind: principal.ScopeTenant, ID: tenant.Root.String()}, "*"))
	for _, row := range principal.Actions {
		want := fault.Forbidden
		if groupRead(row.Action) == row.Action {
			want = ""
		}
		if got := fault.CodeOf(auth.Allow(admin, row.Action, onNode)); got != want {
			t.Errorf("%s: %q, want %q", row.Action, got, want)
		}
	}
}

// The schema knows every action that changes something, so that each can be forbidden.
func TestEveryChangeCanBeForbidden(t *testing.T) {
	admin := actorWith(bound(principal.Scope{Kind: principal.ScopeTenant, ID: tenant.Root.String()}, "*"))
	for _, row := range principal.Actions {
		if groupRead(row.Action) == row.Action {
			continue
		}
		text := fmt.Sprintf(`forbid (principal == Principal::"%s", action == Action::"%s", resource);`,
			admin.Principal, row.Action)
		auth, err := authz.New(authz.File{Name: "one.cedar", Text: []byte(text)})
		if err != nil {
			t.Errorf("%s: %v", row.Action, err)
			continue
		}
		if got := fault.CodeOf(auth.Allow(admin, row.Action, onNode)); got != fault.Forbidden {
			t.Errorf("%s: %q", row.Action, got)
		}
	}
}

func TestBadPoliciesAreNamedWithFileAndLine(t *testing.T) {
	cases := map[string]struct{ text, path string }{
		"syntax":         {"// fine\nforbid (principal, action resource);\n", "own.cedar:2"},
		"permit":         {"\n\npermit (principal, action, resource);\n", "own.cedar:3"},
		"unknown action": {"\nforbid (principal, action == Action::\"compute:nodes:pover\", resource);\n", "own.cedar:2"},
		"unknown type":   {"forbid (principal, action, resource in Rack::\"7\");\n", "own.cedar:1"},
		"unknown field":  {"forbid (principal, action, resource) when { resource.rack == 7 };\n", "own.cedar:1"},
		"read action":    {"forbid (principal, action == Action::\"compute:nodes:read\", resource);\n", "own.cedar:1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := authz.New(authz.File{Name: "own.cedar", Text: []byte(c.text)})
			var refused *fault.Error
			if !errors.As(err, &refused) || refused.Code != fault.InvalidConfig {
				t.Fatalf("got %v, want INVALID_CONFIG", err)
			}
			for _, issue := range refused.Issues {
				if issue.Path != c.path || issue.Message == "" {
					t.Errorf("issue %+v, want one at %s", issue, c.path)
				}
			}
			if len(refused.Issues) == 0 {
				t.Error("no issue")
			}
		})
	}
}

func TestEveryBadPolicyIsNamedAtOnce(t *testing.T) {
	_, err := authz.New(
		authz.File{
			Name: "a.cedar", Text: []byte("permit (principal, action, resource);\npermit (principal, action, resource);"),
		},
		authz.File{Name: "b.cedar", Text: []byte("forbid")},
	)
	var refused *fault.Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	var paths []string
	for _, issue := range refused.Issues {
		paths = append(paths, issue.Path)
	}
	if diff := cmp.Diff([]string{"a.cedar:1", "a.cedar:2", "b.cedar:1"}, paths); diff != "" {
		t.Error(diff)
	}
}

func TestReadDir(t *testing.T) {
	if _, err := authz.ReadDir(t.TempDir() + "/nowhere"); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("a folder that is not there: %v", err)
	}
	dir := t.TempDir()
	files, err := authz.ReadDir(dir)
	if err != nil || len(files) > 0 {
		t.Errorf("an empty folder: %v, %v", files, err)
	}
	for name, text := range map[string]string{"b.cedar": "b", "a.cedar": "a", "notes.txt": "no policy"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err = authz.ReadDir(dir)
	if err != nil || len(files) != 2 || files[0].Name != filepath.Join(dir, "a.cedar") || string(files[1].Text) != "b" {
		t.Errorf("a folder with two policies: %v, %v", files, err)
	}
}
