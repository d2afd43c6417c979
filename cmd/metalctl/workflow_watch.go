package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/workflow"
)

func newWatchWorkflow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "watch WORKFLOW", Short: "Show a workflow's steps as they go, until it is over", Args: cobra.ExactArgs(1),
		Long: withExits(`Shows each step of a workflow as it starts and ends, with the progress of long ones, until the workflow is over.
Interrupting stops the watching; the workflow goes on.`, watchExits),
		Example: "  metalctl workflow watch wf_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := c.GetWorkflow(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.watchWorkflow(cmd.Context(), c, w)
		},
	}
}

// progressEvery is how often the progress of a step in flight is asked for.
const progressEvery = time.Second

// watchWorkflow shows what follows, step by step, until the workflow is over. One that failed is not well.
func (a *app) watchWorkflow(ctx context.Context, c *client.Client, w contract.Workflow) error {
	if err := workflowKind.list(a, []contract.Workflow{w}); err != nil {
		return err
	}
	if !workflow.Status(w.State).Active() {
		return workflowWell(w.State)
	}
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	defer showing.Wait() // after cancel: nothing is told of it once it is over
	defer cancel()
	showing.Go(func() { a.showProgress(ctx, c, w.ID) })
	for e, err := range c.Follow(ctx, client.Feed{After: &w.Position, Subject: "workflow/" + w.ID}) {
		if err != nil {
			return err
		}
		a.say("%s %s", clock(e.At), sentence(e))
		if status, _ := strings.CutPrefix(e.Type, "workflow."); workflow.InfoOf(workflow.Status(status)).Status != "" &&
			!workflow.Status(status).Active() {
			return workflowWell(status)
		}
	}
	return ctx.Err()
}

// showProgress tells how far the step in flight is, whenever that has changed.
func (a *app) showProgress(ctx context.Context, c *client.Client, id string) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var last contract.Progress
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w, err := c.GetWorkflow(ctx, id)
		if err != nil || w.Progress == nil || w.Progress.Percent == last.Percent && w.Progress.Message == last.Message {
			continue // the steps themselves are told by events
		}
		last = *w.Progress
		a.say("%s   %s %s", clock(last.At), bar(last.Percent), last.Message)
	}
}

// bar draws a progress of 0 to 100.
func bar(percent float64) string {
	if percent < 0 {
		return "[" + strings.Repeat("?", barWidth) + "]"
	}
	full := min(int(percent/100*barWidth), barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

const barWidth = 20

func workflowWell(state string) error {
	if workflow.Status(state) == workflow.Failed {
		return errUnwell
	}
	return nil
}
