package principal_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
)

var who = id.Of[id.Principal](uuid.UUID{15: 1})

func created() principal.Command {
	return principal.Create{Facts: principal.Created{Principal: who, Name: "ci", Kind: principal.Service}}
}

func token(n byte) principal.Token {
	return principal.Token{ID: id.Of[id.Token](uuid.UUID{15: n}), Hash: "h"}
}

func binding(n byte, scope principal.ScopeKind, actions ...principal.Pattern) principal.Bind {
	return principal.Bind{Binding: principal.Binding{
		ID: id.Of[id.Binding](uuid.UUID{15: n}), Actions: actions, Scope: principal.Scope{Kind: scope, ID: "x"},
	}}
}

func TestVerbs(t *testing.T) {
	one := token(1)
	tests := map[string]struct {
		given []principal.Command
		when  principal.Command
		want  string // type of the only event; empty: none
		err   fault.Code
	}{
		"create":               {when: created(), want: "principal.created"},
		"create twice":         {given: []principal.Command{created()}, when: created(), err: fault.Conflict},
		"create a wrong kind":  {when: principal.Create{Facts: principal.Created{Principal: who, Kind: "robot"}}, err: fault.InvalidInput},
		"disable nobody":       {when: principal.Disable{}, err: fault.NotFound},
		"disable":              {given: []principal.Command{created()}, when: principal.Disable{}, want: "principal.disabled"},
		"disable twice":        {given: []principal.Command{created(), principal.Disable{}}, when: principal.Disable{}},
		"enable":               {given: []principal.Command{created(), principal.Disable{}}, when: principal.Enable{}, want: "principal.enabled"},
		"enable what is":       {given: []principal.Command{created()}, when: principal.Enable{}},
		"issue":                {given: []principal.Command{created()}, when: principal.IssueToken{Token: one}, want: "principal.token.issued"},
		"revoke":               {given: []principal.Command{created(), principal.IssueToken{Token: one}}, when: principal.RevokeToken{Token: one.ID}, want: "principal.token.revoked"},
		"revoke unknown":       {given: []principal.Command{created()}, when: principal.RevokeToken{Token: one.ID}, err: fault.NotFound},
		"bind":                 {given: []principal.Command{created()}, when: binding(1, principal.ScopePool, "compute:nodes:*"), want: "principal.bound"},
		"bind nothing":         {given: []principal.Command{created()}, when: binding(1, principal.ScopePool), err: fault.InvalidInput},
		"bind a wrong action":  {given: []principal.Command{created()}, when: binding(1, principal.ScopePool, "compute:nodes:rea*"), err: fault.InvalidInput},
		"bind a wrong scope":   {given: []principal.Command{created()}, when: binding(1, "galaxy", "*"), err: fault.InvalidInput},
		"unbind":               {given: []principal.Command{created(), binding(1, principal.ScopeNode, "*")}, when: principal.Unbind{Binding: id.Of[id.Binding](uuid.UUID{15: 1})}, want: "principal.unbound"},
		"unbind what is not":   {given: []principal.Command{created()}, when: principal.Unbind{}, err: fault.NotFound},
		"a token of nobody":    {when: principal.IssueToken{Token: one}, err: fault.NotFound},
		"one token too many":   {given: append([]principal.Command{created()}, tokens(principal.MaxTokens)...), when: principal.IssueToken{Token: token(250)}, err: fault.InvalidState},
		"one binding too many": {given: append([]principal.Command{created()}, bindings(principal.MaxBindings)...), when: binding(250, principal.ScopeNode, "*"), err: fault.InvalidState},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var s principal.State
			for _, c := range tt.given {
				events, err := principal.Decide(s, c)
				if err != nil {
					t.Fatal(err)
				}
				s = principal.Decider.Fold(s, events...)
			}
			events, err := principal.Decide(s, tt.when)
			if fault.CodeOf(err) != tt.err {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			got := ""
			if len(events) == 1 {
				got = events[0].EventType()
			}
			if got != tt.want || len(events) > 1 {
				t.Fatalf("got %v, want %q", events, tt.want)
			}
		})
	}
}

func tokens(n int) []principal.Command {
	commands := make([]principal.Command, n)
	for i := range commands {
		commands[i] = principal.IssueToken{Token: token(byte(i))}
	}
	return commands
}

func bindings(n int) []principal.Command {
	commands := make([]principal.Command, n)
	for i := range commands {
		commands[i] = binding(byte(i), principal.ScopeNode, "*")
	}
	return commands
}

func TestPatterns(t *testing.T) {
	tests := []struct {
		pattern principal.Pattern
		action  principal.Action
		want    bool
	}{
		{"*", principal.NodesRead, true},
		{"compute:*", principal.NodesRead, true},
		{"compute:nodes:*", principal.NodesRead, true},
		{"compute:nodes:*", principal.PoolsRead, false},
		{"compute:nodes:read", principal.NodesRead, true},
		{"compute:nodes:read", principal.NodesPower, false},
		{"compute:node*", principal.NodesRead, false},
		{"compute", principal.NodesRead, false},
		{"", principal.NodesRead, false},
	}
	for _, tt := range tests {
		if got := tt.pattern.Grants(tt.action); got != tt.want {
			t.Errorf("%q grants %s: %v", tt.pattern, tt.action, got)
		}
	}
	for p, want := range map[principal.Pattern]bool{"*": true, "compute:moon:*": false, "compute:iam:write": true, "nodes:*": false, "": false} {
		if p.Valid() != want {
			t.Errorf("%q is valid: %v", p, p.Valid())
		}
	}
}

// A folded state is shared by whoever reads it: a later event must not show in it.
func TestFoldsDoNotShareMaps(t *testing.T) {
	s := principal.Evolve(principal.State{}, principal.TokenIssued{Token: token(1)})
	later := principal.Evolve(s, principal.TokenIssued{Token: token(2)})
	if len(s.Tokens) != 1 || len(later.Tokens) != 2 {
		t.Fatalf("%d and %d tokens", len(s.Tokens), len(later.Tokens))
	}
}
