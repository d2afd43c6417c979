package main

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/workflow"
)

// statusRow is a state of a workflow with the verbs that are legal in it.
type statusRow struct {
	Status   workflow.Status `json:"state"`
	Terminal bool            `json:"terminal"`
	Legal    []workflow.Verb `json:"legal"`
	Meaning  string          `json:"meaning"`
}

var statusKind = kind[statusRow]{
	id: func(s statusRow) string { return string(s.Status) },
	columns: []column[statusRow]{
		{name: "STATE", of: func(s statusRow) string { return string(s.Status) }, shade: workflowShade},
		{name: "TERMINAL", of: func(s statusRow) string { return yes(s.Terminal) }},
		{name: "LEGAL", of: func(s statusRow) string {
			verbs := make([]string, len(s.Legal))
			for i, v := range s.Legal {
				verbs[i] = string(v)
			}
			return strings.Join(verbs, ", ")
		}},
		{name: "MEANING", of: func(s statusRow) string { return s.Meaning }},
	},
}

func statusRows() []statusRow {
	rows := make([]statusRow, len(workflow.StatusTable))
	for i, s := range workflow.StatusTable {
		rows[i] = statusRow{s.Status, s.Terminal, append([]workflow.Verb{}, s.Legal...), s.Meaning}
	}
	return rows
}

var stepInfoKind = kind[contract.StepInfo]{
	id: func(s contract.StepInfo) string { return s.ID },
	columns: []column[contract.StepInfo]{
		{name: "STEP", of: func(s contract.StepInfo) string { return s.ID }},
		{name: "RUNS-ON", of: runsOn},
		{name: "SENDS", of: func(s contract.StepInfo) string { return strings.Join(s.Sends, ",") }},
		{name: "TIMEOUT", of: func(s contract.StepInfo) string { return s.Timeout }},
		{name: "SUMMARY", of: func(s contract.StepInfo) string { return s.Summary }},
		{name: "RETRIES", wide: true, of: func(s contract.StepInfo) string { return fmt.Sprint(s.Retries) }},
		{name: "RETRY-DELAY", wide: true, of: func(s contract.StepInfo) string { return s.RetryDelay }},
		{name: "REJOIN", wide: true, of: func(s contract.StepInfo) string { return yes(s.Rejoin) }},
		{name: "BRINGS", wide: true, of: func(s contract.StepInfo) string { return s.Brings }},
		{name: "CLEANUP", wide: true, of: func(s contract.StepInfo) string { return s.Cleanup }},
	},
}

// runsOn is where a step runs, and where what it sends does.
func runsOn(s contract.StepInfo) string {
	if len(s.Relays) == 0 {
		return s.RunsOn
	}
	return s.RunsOn + " → " + strings.Join(s.Relays, ",")
}

func newExplainSteps(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "steps [STEP]", Short: "What each step of profiles does, where it runs and what it sends", Args: cobra.MaximumNArgs(1),
		Long: withExits(`Lists the steps that profiles may use, as the control plane has them. With a name, only that, with the JSON Schema of its
input.`, remoteExits),
		Example: "  metalctl explain steps\n  metalctl explain steps disk.wipe",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(c.Steps(cmd.Context()), 0)
			if err != nil || len(args) == 0 {
				return listSteps(a, all, err)
			}
			for _, s := range all {
				if strings.EqualFold(s.ID, args[0]) {
					return a.stepCard(s)
				}
			}
			return usage("there is no step %q; see `metalctl explain steps`", args[0])
		},
	}
}

func listSteps(a *app, all []contract.StepInfo, err error) error {
	if err != nil {
		return err
	}
	return stepInfoKind.list(a, all)
}

// stepCard prints a step and, for people, what it takes.
func (a *app) stepCard(s contract.StepInfo) error {
	if err := stepInfoKind.one(a, s); err != nil || len(s.Input) == 0 || a.flag.output != "table" && a.flag.output != "wide" {
		return err
	}
	text, err := yaml.JSONToYAML(s.Input)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "\nwith (JSON Schema):\n%s", text)
	return err
}
