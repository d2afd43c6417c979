package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// workflowVerb is one verb against a workflow.
type workflowVerb struct {
	name, short, long, example string
	flags                      func(*cobra.Command)
	apply                      func(context.Context, *client.Client, string, ...client.Option) (contract.Workflow, error)
}

func (v workflowVerb) command(a *app) *cobra.Command {
	var f writeFlags
	var watch bool
	cmd := &cobra.Command{
		Use: v.name + " WORKFLOW", Short: v.short, Long: withExits(v.long, watchExits), Example: v.example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := v.apply(cmd.Context(), c, args[0], f.options()...)
			if err != nil {
				return err
			}
			if watch {
				return a.watchWorkflow(cmd.Context(), c, w)
			}
			return workflowKind.one(a, w)
		},
	}
	f.change(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "then show its steps until it is over; exit 7 if it fails")
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

func newAbortWorkflow(a *app) *cobra.Command {
	var in contract.Reason
	return workflowVerb{
		name: "abort", short: "Stop a workflow; its cleanup still runs",
		long: `Cancels the steps that have not run and the agent command in flight, runs the cleanup, and ends the workflow cancelled. The
machine it runs on fails; recover leads it on. A workflow that has not begun, or that failed, is cancelled at once.`,
		example: "  metalctl workflow abort wf_01k… --reason 'wrong rack'",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&in.Reason, "reason", "", "why, in up to 512 characters")
		},
		apply: func(ctx context.Context, c *client.Client, w string, o ...client.Option) (contract.Workflow, error) {
			return c.AbortWorkflow(ctx, w, in, o...)
		},
	}.command(a)
}

func newRetryWorkflow(a *app) *cobra.Command {
	var in contract.Retry
	return workflowVerb{
		name: "retry", short: "Run a failed workflow again from the step that failed",
		long: `Runs a failed workflow again from a step: that step and every later one get another attempt, the ones before keep their
results. The machine leaves failed for the state that it failed from.`,
		example: "  metalctl workflow retry wf_01k… --watch\n  metalctl workflow retry wf_01k… --from-step disk.wipe",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&in.FromStep, "from-step", "", "a main step (default the first that did not succeed)")
		},
		apply: func(ctx context.Context, c *client.Client, w string, o ...client.Option) (contract.Workflow, error) {
			return c.RetryWorkflow(ctx, w, in, o...)
		},
	}.command(a)
}

func newPauseWorkflow(a *app) *cobra.Command {
	return workflowVerb{
		name: "pause", short: "Let the step in flight finish, and start no other",
		long:    "Lets the step in flight finish and starts no further one until resume. Only a running workflow can pause.",
		example: "  metalctl workflow pause wf_01k…",
		apply: func(ctx context.Context, c *client.Client, w string, o ...client.Option) (contract.Workflow, error) {
			return c.PauseWorkflow(ctx, w, o...)
		},
	}.command(a)
}

func newResumeWorkflow(a *app) *cobra.Command {
	return workflowVerb{
		name: "resume", short: "Start the steps of a paused workflow again",
		long: "Starts the steps of a paused workflow again.", example: "  metalctl workflow resume wf_01k…",
		apply: func(ctx context.Context, c *client.Client, w string, o ...client.Option) (contract.Workflow, error) {
			return c.ResumeWorkflow(ctx, w, o...)
		},
	}.command(a)
}
