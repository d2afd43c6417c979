package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
)

const explainLong = `Explains the words of the control plane from the tables that this program was built with, the
same that the control plane
decides by. It asks nobody, but for steps: those are of the control plane.`

func newExplain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain", Short: "Explain states, verbs, errors, actions, workflows and steps", GroupID: groupLocal,
		Long: withExits(explainLong, localExits),
	}
	cmd.AddCommand(
		explainer(a, "states", "What each provision state is, and what leads out of it", stateKind, stateRows(),
			func(s stateRow) string { return string(s.State) }),
		explainer(a, "verbs", "What each verb moves, from where to where, and who may", verbKind, verbRows(),
			func(v verbRow) string { return string(v.Verb) }),
		explainer(a, "errors", "What each error code means, and what to do", errorKind, errorRows(),
			func(e errorRow) string { return string(e.Code) }),
		explainer(a, "actions", "What a binding may grant, and where", actionKind, actionRows(),
			func(r actionRow) string { return string(r.Action) }),
		explainer(a, "workflows", "What each state of a workflow is, and what may be asked of it", statusKind, statusRows(),
			func(s statusRow) string { return string(s.Status) }),
		newExplainSteps(a),
	)
	return cmd
}

// explainer makes a command that shows a table, or the rows of one name.
func explainer[T any](a *app, name, short string, k kind[T], rows []T, key func(T) string) *cobra.Command {
	var keys []string
	for _, r := range rows {
		if len(keys) == 0 || keys[len(keys)-1] != key(r) {
			keys = append(keys, key(r))
		}
	}
	singular := strings.TrimSuffix(name, "s")
	return &cobra.Command{
		Use: name + " [" + strings.ToUpper(singular) + "]", Short: short, Args: cobra.MaximumNArgs(1),
		Long:    withExits(short+". With a name, only that.", localExits),
		Example: "  metalctl explain " + name + "\n  metalctl explain " + name + " " + keys[len(keys)/2],
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return keys, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return k.list(a, rows)
			}
			var found []T
			for _, r := range rows {
				if strings.EqualFold(key(r), args[0]) {
					found = append(found, r)
				}
			}
			switch len(found) {
			case 0:
				return usage("there is no %s %q; there are: %s", singular, args[0], strings.Join(keys, ", "))
			case 1:
				return k.one(a, found[0])
			}
			return k.list(a, found)
		},
	}
}

// stateRow is a provision state with what leads out of it.
type stateRow struct {
	State       node.ProvisionState `json:"state"`
	Kind        node.Kind           `json:"kind"`
	Profile     string              `json:"profile,omitempty"`
	Schedulable bool                `json:"schedulable"`
	Meaning     string              `json:"meaning"`
	Out         []string            `json:"out"`
}

var stateKind = kind[stateRow]{
	id: func(s stateRow) string { return string(s.State) },
	columns: []column[stateRow]{
		{name: "STATE", of: func(s stateRow) string { return string(s.State) }, shade: stateShade},
		{name: "KIND", of: func(s stateRow) string { return string(s.Kind) }},
		{name: "SCHEDULABLE", of: func(s stateRow) string { return yes(s.Schedulable) }},
		{name: "WORKFLOW", of: func(s stateRow) string { return s.Profile }},
		{name: "MEANING", of: func(s stateRow) string { return s.Meaning }},
		{name: "OUT", wide: true, of: func(s stateRow) string { return strings.Join(s.Out, "; ") }},
	},
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func stateRows() []stateRow {
	rows := make([]stateRow, len(node.States))
	for i, s := range node.States {
		rows[i] = stateRow{s.State, s.Kind, s.Profile, s.Schedulable, s.Meaning, []string{}}
		for _, m := range node.Moves {
			if m.From == s.State {
				rows[i].Out = append(rows[i].Out, fmt.Sprintf("%s → %s (%s)", m.Verb, m.To, m.Who))
			}
		}
		if s.State != node.Failed {
			continue
		}
		for _, r := range node.Recoveries {
			rows[i].Out = append(rows[i].Out, fmt.Sprintf("recover → %s (from %s)", r.Recover, r.FailedFrom))
		}
	}
	return rows
}

// verbRow is one move of a verb.
type verbRow struct {
	Verb node.Verb           `json:"verb"`
	From node.ProvisionState `json:"from"`
	To   node.ProvisionState `json:"to"`
	Who  node.Actor          `json:"who"`
	Note string              `json:"note,omitempty"`
}

var verbKind = kind[verbRow]{
	id: func(v verbRow) string { return string(v.Verb) },
	columns: []column[verbRow]{
		{name: "VERB", of: func(v verbRow) string { return string(v.Verb) }},
		{name: "FROM", of: func(v verbRow) string { return string(v.From) }},
		{name: "TO", of: func(v verbRow) string { return string(v.To) }},
		{name: "WHO", of: func(v verbRow) string { return string(v.Who) }},
		{name: "NOTE", of: func(v verbRow) string { return v.Note }},
	},
}

// axes are the verbs that change another axis than the provision state; they are legal in every state but retired.
var axes = []verbRow{
	{Verb: node.VerbPower, Who: node.Operator, Note: "asks the BMC; the state stays. Not while a workflow runs"},
	{Verb: node.VerbMaintenance, Who: node.Operator, Note: "from scheduling, or back; the state stays"},
	{Verb: node.VerbCordon, Who: node.Operator, Note: "no new work; the state stays"},
	{Verb: node.VerbUncordon, Who: node.Operator, Note: "new work again; the state stays"},
}

func verbRows() []verbRow {
	var rows []verbRow
	for _, v := range node.Verbs() {
		for _, m := range node.Moves {
			if m.Verb == v {
				rows = append(rows, verbRow{v, m.From, m.To, m.Who, m.Why})
			}
		}
	}
	for _, r := range node.Recoveries {
		why := "failed from " + string(r.FailedFrom) + note(r.Why)
		rows = append(rows, verbRow{node.VerbRecover, node.Failed, r.Recover, node.Operator, why})
	}
	for _, r := range node.Recoveries {
		if r.Retry != node.None {
			why := "failed from " + string(r.FailedFrom)
			rows = append(rows, verbRow{node.VerbRetry, node.Failed, r.Retry, node.Operator, why})
		}
	}
	return append(rows, axes...)
}

func note(why string) string {
	if why == "" {
		return ""
	}
	return "; " + why
}

// errorRow is an error code with the exit code of this program.
type errorRow struct {
	Code   fault.Code `json:"code"`
	HTTP   int        `json:"http"`
	Exit   exitCode   `json:"exit"`
	When   string     `json:"when"`
	Remedy string     `json:"remedy"`
}

var errorKind = kind[errorRow]{
	id: func(e errorRow) string { return string(e.Code) },
	columns: []column[errorRow]{
		{name: "CODE", of: func(e errorRow) string { return string(e.Code) }},
		{name: "HTTP", of: func(e errorRow) string { return fmt.Sprint(e.HTTP) }},
		{name: "EXIT", of: func(e errorRow) string { return fmt.Sprint(int(e.Exit)) }},
		{name: "WHEN", of: func(e errorRow) string { return e.When }},
		{name: "REMEDY", of: func(e errorRow) string { return e.Remedy }},
	},
}

func errorRows() []errorRow {
	rows := make([]errorRow, len(fault.Codes))
	for i, c := range fault.Codes {
		rows[i] = errorRow{c.Code, c.HTTP, exitOf(c.Code), c.When, c.Remedy}
	}
	return rows
}

// actionRow is an action that a binding may grant.
type actionRow struct {
	Action principal.Action `json:"action"`
	At     string           `json:"narrowestScope"`
	Allows string           `json:"allows"`
}

var actionKind = kind[actionRow]{
	id: func(r actionRow) string { return string(r.Action) },
	columns: []column[actionRow]{
		{name: "ACTION", of: func(r actionRow) string { return string(r.Action) }},
		{name: "NARROWEST-SCOPE", of: func(r actionRow) string { return r.At }},
		{name: "ALLOWS", of: func(r actionRow) string { return r.Allows }},
	},
}

func actionRows() []actionRow {
	rows := make([]actionRow, len(principal.Actions))
	for i, r := range principal.Actions {
		rows[i] = actionRow{r.Action, r.DecidedOn, r.Allows}
	}
	return rows
}
