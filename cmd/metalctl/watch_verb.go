package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

const watchLong = `Shows a machine, and then whatever happens to it, until it rests: in a state in which nothing moves it until somebody
asks. Interrupting stops the watching; the machine goes on. Nothing is changed.

Exit status 7 says that it rests in failed.`

func newWatch(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "watch NODE", Short: "Show what happens to a machine until it rests", Long: withExits(watchLong, watchExits),
		Example: "  metalctl watch node_01k…", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			n, err := c.GetNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := nodeKind.list(a, []contract.Node{n}); err != nil {
				return err
			}
			return a.watchVerb(cmd.Context(), c, n)
		},
	}
}

// watchVerb shows what follows a verb, event by event, until the machine rests. One that failed is not well.
func (a *app) watchVerb(ctx context.Context, c *client.Client, n contract.Node) error {
	if atRest(n) {
		return restingWell(n)
	}
	a.say("watching %s; interrupt to stop, the machine goes on", n.ID)
	last := n
	err := a.watchNode(ctx, c, n, func(now contract.Node, e contract.Event) (bool, error) {
		last = now
		if !ofNode(e) {
			a.sayStep(e)
			return false, nil
		}
		if err := a.rows(nodeKind, now); err != nil {
			return false, err
		}
		a.say("%s %s", clock(e.At), sentence(e))
		return atRest(now), nil
	})
	if err != nil {
		return err
	}
	return restingWell(last)
}

// atRest tells a machine that nothing moves until somebody asks.
func atRest(n contract.Node) bool {
	kind := node.InfoOf(node.ProvisionState(n.Provision)).Kind
	return kind == node.Stable || kind == node.Terminal || n.RescueUp && !n.Unrescuing
}

func restingWell(n contract.Node) error {
	if n.Provision == string(node.Failed) {
		return errUnwell
	}
	return nil
}
