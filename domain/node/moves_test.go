package node_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

var update = flag.Bool("update", false, "write the generated documents")

const movesDocument = "../../schema/node-moves.md"

func TestTablesAreWhole(t *testing.T) {
	for _, row := range node.States {
		canFail := len(node.Destinations(row.State, node.VerbFail, node.None)) > 0
		recovers := len(node.Destinations(node.Failed, node.VerbRecover, row.State)) == 1
		if canFail != recovers {
			t.Errorf("%s: can fail %v, recover has a row %v", row.State, canFail, recovers)
		}
		if drives := row.Kind == node.WorkflowDriven; drives {
			for _, v := range []node.Verb{node.VerbComplete, node.VerbFail, node.VerbAbort} {
				if len(node.Destinations(row.State, v, node.None)) == 0 {
					t.Errorf("%s is workflow-driven, but %s leads nowhere from it", row.State, v)
				}
			}
			if len(node.Destinations(node.Failed, node.VerbRetry, row.State)) != 1 {
				t.Errorf("%s: its failed workflow can't be retried", row.State)
			}
		}
		if row.Kind == node.Terminal && len(node.Legal(row.State, node.None)) > 0 {
			t.Errorf("%s is terminal, but %v are legal in it", row.State, node.Legal(row.State, node.None))
		}
	}
	for _, m := range node.Moves {
		for _, s := range []node.ProvisionState{m.From, m.To} {
			if s != node.None && node.InfoOf(s).Meaning == "" {
				t.Errorf("%s from %s to %s: %s is not in States", m.Verb, m.From, m.To, s)
			}
		}
	}
}

// The moves that must never exist.
func TestForbiddenMoves(t *testing.T) {
	forbidden := [][2]node.ProvisionState{
		{node.Deployed, node.Failed}, {node.Deployed, node.Retiring}, {node.Adopted, node.Failed},
		{node.Failed, node.Ready}, {node.Rescue, node.Ready}, {node.Deploying, node.Ready},
	}
	for _, row := range node.States {
		forbidden = append(forbidden, [2]node.ProvisionState{node.Retired, row.State})
	}
	for _, f := range forbidden {
		for _, v := range node.Verbs() {
			for _, failedFrom := range allStates() {
				if slices.Contains(node.Destinations(f[0], v, failedFrom), f[1]) {
					t.Errorf("%s leads from %s to %s", v, f[0], f[1])
				}
			}
		}
	}
	for _, from := range []node.ProvisionState{node.Deployed, node.Rescue} {
		for _, v := range []node.Verb{node.VerbManage, node.VerbInspect, node.VerbProvide} {
			if len(node.Destinations(from, v, node.None)) > 0 {
				t.Errorf("%s is legal from %s", v, from)
			}
		}
	}
}

func allStates() []node.ProvisionState {
	states := []node.ProvisionState{node.None}
	for _, row := range node.States {
		states = append(states, row.State)
	}
	return states
}

// Every operator's verb in every state is accepted or refused exactly as the tables say.
func TestEveryVerbInEveryState(t *testing.T) {
	verbs := map[node.Verb]node.Command{
		node.VerbManage: node.Manage{}, node.VerbInspect: node.Inspect{}, node.VerbProvide: node.Provide{},
		node.VerbDeploy: node.Deploy{Profile: image}, node.VerbUndeploy: node.Undeploy{}, node.VerbRescue: node.AskRescue{},
		node.VerbRetire: node.Retire{}, node.VerbAbandon: node.Abandon{Reason: "gone"}, node.VerbRecover: node.Recover{},
		node.VerbAccept: node.Accept{},
	}
	for _, row := range node.States {
		for verb, command := range verbs {
			for _, failedFrom := range failedFroms(row.State) {
				s := node.State{ID: someNode, Provision: row.State, FailedFrom: failedFrom, RescueUp: true}
				allowed := node.Destinations(row.State, verb, failedFrom)
				events, err := node.Decide(s, command)
				switch {
				case len(allowed) == 0 && fault.CodeOf(err) != fault.InvalidState:
					t.Errorf("%s in %s: got %v, %v, want INVALID_STATE", verb, row.State, events, err)
				case len(allowed) > 0 && (err != nil || len(events) != 1):
					t.Errorf("%s in %s: got %v, %v, want a move", verb, row.State, events, err)
				case len(allowed) > 0 && !slices.Contains(allowed, events[0].(node.Moved).To):
					t.Errorf("%s in %s led to %v, want one of %v", verb, row.State, events[0], allowed)
				}
			}
		}
	}
}

func failedFroms(s node.ProvisionState) []node.ProvisionState {
	if s != node.Failed {
		return []node.ProvisionState{node.None}
	}
	var from []node.ProvisionState
	for _, r := range node.Recoveries {
		from = append(from, r.FailedFrom)
	}
	return from
}

func TestMovesDocumentIsCurrent(t *testing.T) {
	want := movesMarkdown()
	if *update {
		if err := os.WriteFile(movesDocument, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(movesDocument)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not what the tables say (%v): go test ./domain/node -run Document -update", movesDocument, err)
	}
}

func movesMarkdown() []byte {
	var b bytes.Buffer
	b.WriteString("# Provision states and moves\n\nGenerated from `domain/node/moves.go` by its test. Do not edit.\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, m := range node.Moves {
		if m.Verb == node.VerbFail || m.Verb == node.VerbAbort {
			continue
		}
		fmt.Fprintf(&b, "    %s --> %s: %s\n", mermaid(m.From), m.To, m.Verb)
	}
	for _, r := range node.Recoveries {
		fmt.Fprintf(&b, "    failed --> %s: recover (from %s)\n", r.Recover, r.FailedFrom)
	}
	b.WriteString("    retired --> [*]\n```\n\nNot drawn: `fail` and `abort` lead to `failed`; `retry` leads back.\n")

	b.WriteString("\n## States\n\n| state | kind | workflow | schedulable | meaning |\n|---|---|---|---|---|\n")
	for _, row := range node.States {
		profile := row.Profile
		if profile == "" && row.Kind == node.WorkflowDriven {
			profile = "the profile that the verb names"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", row.State, row.Kind, profile, yes(row.Schedulable), row.Meaning)
	}
	b.WriteString("\n## Moves\n\n| verb | from | to | who | note |\n|---|---|---|---|---|\n")
	for _, m := range node.Moves {
		from := "–"
		if m.From != node.None {
			from = "`" + string(m.From) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s |\n", m.Verb, from, m.To, m.Who, m.Why)
	}
	b.WriteString("\n## From failed\n\n| failed from | recover leads to | retry of the workflow leads to | note |\n|---|---|---|---|\n")
	for _, r := range node.Recoveries {
		retry := "–"
		if r.Retry != node.None {
			retry = "`" + string(r.Retry) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", r.FailedFrom, r.Recover, retry, r.Why)
	}
	return b.Bytes()
}

func mermaid(s node.ProvisionState) string {
	if s == node.None {
		return "[*]"
	}
	return string(s)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func TestEveryEventFolds(t *testing.T) {
	for _, row := range node.Events {
		for _, name := range row.Names {
			e, err := row.Zero()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			node.Evolve(node.State{}, e.(node.Event)) // panics on one it does not know
		}
	}
}
