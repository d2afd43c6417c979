package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/workflow"
)

var workflowKind = kind[contract.Workflow]{
	id: func(w contract.Workflow) string { return w.ID },
	columns: []column[contract.Workflow]{
		{name: "WORKFLOW", of: func(w contract.Workflow) string { return w.ID }},
		{name: "PROFILE", of: func(w contract.Workflow) string { return w.Profile + "@" + strconv.Itoa(w.ProfileVersion) }},
		{name: "STATE", of: func(w contract.Workflow) string { return w.State }, shade: workflowShade},
		{name: "STEP", of: func(w contract.Workflow) string { return w.Step }},
		{name: "DONE", of: doneSteps},
		{name: "TOOK", of: func(w contract.Workflow) string { return took(w.StartedAt, w.EndedAt) }},
		{name: "CREATED", of: func(w contract.Workflow) string { return clock(w.CreatedAt) }},
		{name: "NODE", wide: true, of: func(w contract.Workflow) string { return w.Node }},
		{name: "RUN", wide: true, of: func(w contract.Workflow) string { return strconv.Itoa(w.Run) }},
		{name: "ERROR", wide: true, of: func(w contract.Workflow) string {
			if w.Error == nil {
				return ""
			}
			return w.Error.Code + ": " + w.Error.Message
		}},
		{name: "REASON", wide: true, of: func(w contract.Workflow) string { return w.Reason }},
		{name: "VERSION", wide: true, of: func(w contract.Workflow) string { return strconv.FormatUint(w.Version, 10) }},
	},
}

var stepKind = kind[contract.WorkflowStep]{
	id: func(s contract.WorkflowStep) string { return s.ID },
	columns: []column[contract.WorkflowStep]{
		{name: "STEP", of: func(s contract.WorkflowStep) string { return s.ID }},
		{name: "PHASE", of: func(s contract.WorkflowStep) string { return s.Phase }},
		{name: "ON", of: func(s contract.WorkflowStep) string { return s.RunsOn }},
		{name: "STATE", of: func(s contract.WorkflowStep) string { return s.State }, shade: stepShade},
		{name: "ATTEMPT", of: func(s contract.WorkflowStep) string { return strconv.Itoa(s.Attempt) }},
		{name: "TOOK", of: func(s contract.WorkflowStep) string { return took(s.StartedAt, s.SettledAt) }},
		{name: "ERROR", of: func(s contract.WorkflowStep) string {
			if s.Error == nil {
				return ""
			}
			return s.Error.Code + ": " + s.Error.Message
		}},
	},
}

func workflowShade(state string) string {
	switch workflow.Status(state) {
	case workflow.Succeeded:
		return green
	case workflow.Failed, workflow.Failing:
		return red
	case workflow.Paused, workflow.Cancelling, workflow.Cancelled:
		return yellow
	default:
		return plain
	}
}

func stepShade(state string) string {
	switch workflow.StepState(state) {
	case workflow.StepSucceeded:
		return green
	case workflow.StepFailed:
		return red
	case workflow.StepRunning, workflow.StepWaiting:
		return yellow
	default:
		return plain
	}
}

// doneSteps counts the main steps: settled of all.
func doneSteps(w contract.Workflow) string {
	done, all := 0, 0
	for _, s := range w.Steps {
		if s.Phase != string(workflow.Main) {
			continue
		}
		all++
		if workflow.StepState(s.State).Settled() {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, all)
}

// took is how long something took; empty while it goes on.
func took(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return to.Sub(*from).Round(10 * time.Millisecond).String()
}

func newWorkflow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workflow", Aliases: []string{"wf"}, Short: "See and steer workflows", GroupID: groupReads,
		Long: withExits(`A workflow is one run of a profile on a machine: what each provision state does is a workflow.`, remoteExits),
	}
	cmd.AddCommand(newGetWorkflow(a), newListWorkflows(a), newWatchWorkflow(a), newAbortWorkflow(a), newRetryWorkflow(a),
		newPauseWorkflow(a), newResumeWorkflow(a))
	return cmd
}

func newGetWorkflow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get WORKFLOW", Short: "Show a workflow with its steps", Args: cobra.ExactArgs(1),
		Long: withExits("Shows one workflow and each of its steps.", remoteExits), Example: "  metalctl workflow get wf_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := c.GetWorkflow(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.workflowCard(w)
		},
	}
}

// workflowCard prints a workflow and, for people, a table of its steps.
func (a *app) workflowCard(w contract.Workflow) error {
	if err := workflowKind.one(a, w); err != nil || a.flag.output != "table" && a.flag.output != "wide" {
		return err
	}
	if _, err := fmt.Fprintln(a.out); err != nil {
		return err
	}
	return stepKind.table(a, w.Steps, true)
}

func newListWorkflows(a *app) *cobra.Command {
	var f client.WorkflowFilter
	var limit int
	cmd := &cobra.Command{
		Use: "list [NODE]", Short: "List workflows, newest first", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeNodes,
		Long:    withExits("Lists workflows, newest first: all that the credential may see, or those of one machine.", remoteExits),
		Example: "  metalctl workflow list node_01k…\n  metalctl workflow list --state failed,failing",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage("--limit is not negative")
			}
			for _, s := range f.States {
				if !oneOf(s, workflowStates()) {
					return usage("--state is any of %s; not %q", strings.Join(workflowStates(), ", "), s)
				}
			}
			if len(args) == 1 {
				f.Node = args[0]
			}
			f.PageSize = min(limit, 100)
			return fetchAll(a, workflowKind, func(c *client.Client) ([]contract.Workflow, error) {
				return client.Collect(c.Workflows(cmd.Context(), f), limit)
			})
		},
	}
	cmd.Flags().StringSliceVar(&f.States, "state", nil, "any of these states")
	cmd.Flags().StringVar(&f.Tenant, "tenant", "", "of this tenant")
	cmd.Flags().StringVar(&f.Profile, "profile", "", "of the profile with this id")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("state", words(workflowStates()...)) // the flag was made above
	return cmd
}

func workflowStates() []string {
	names := make([]string, len(workflow.StatusTable))
	for i, row := range workflow.StatusTable {
		names[i] = string(row.Status)
	}
	return names
}
