package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

const getNodeLong = `Shows one machine: where it stands, what marks it, how its BMC is reached, what failed last, and what its newest inventory says:
processors, memory, firmware, disks, network ports with the switch's port that each is plugged into, other devices.

With --at it is shown as it was, folded from the log: at a time (2026-01-31T12:00:00Z) or at a log position. Nothing is
changed. With --watch it is shown again whenever something happens to it.`

func newGetNode(a *app) *cobra.Command {
	var at string
	var watch bool
	cmd := &cobra.Command{
		Use: "node NODE", Short: "Show one machine, now or as it was", Long: withExits(getNodeLong, remoteExits),
		Example: "  metalctl get node node_01k…\n  metalctl get node node_01k… --at 2026-01-31T12:00:00Z -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if at != "" {
				n, err := c.NodeAt(cmd.Context(), args[0], at)
				if err != nil {
					return err
				}
				return nodeKind.one(a, n)
			}
			n, err := c.GetNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := nodeKind.one(a, n); err != nil || !watch {
				return err
			}
			return a.watchNode(cmd.Context(), c, n, func(n contract.Node, e contract.Event) (bool, error) {
				if !ofNode(e) {
					return false, nil
				}
				return false, nodeKind.one(a, n)
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "a time (RFC 3339) or a log position: the machine as it was then")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever something happens, until interrupted")
	cmd.MarkFlagsMutuallyExclusive("at", "watch")
	return cmd
}

const listNodesLong = `Lists machines, newest first: those that the credential may see. Filters narrow the list:
several states are any of
them, several labels all of them.

With --watch the list is followed by a line for every machine of it whenever something happens to it.`

// nodeFilter is the filter of a list of machines as flags.
type nodeFilter struct {
	client.NodeFilter
	maintenance, cordoned bool
	limit                 int
	watch                 bool
}

func (f *nodeFilter) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.States, "state", nil, "any of these provision states")
	flags.StringVar(&f.Tenant, "tenant", "", "of this tenant")
	flags.StringVar(&f.Site, "site", "", "at this site")
	flags.StringVar(&f.Pool, "pool", "", "in this pool")
	flags.StringArrayVarP(&f.Labels, "label", "l", nil, "with this label: key or key=value; repeat for more")
	flags.StringVar(&f.NamePrefix, "name", "", "with a name that begins so")
	flags.BoolVar(&f.maintenance, "maintenance", false, "in maintenance; --maintenance=false: not")
	flags.BoolVar(&f.cordoned, "cordoned", false, "cordoned; --cordoned=false: not")
	flags.IntVar(&f.limit, "limit", 0, "at most this many; 0: all")
	flags.BoolVarP(&f.watch, "watch", "w", false, "then follow what happens to them, until interrupted")
	_ = cmd.RegisterFlagCompletionFunc("state", words(stateNames()...)) // the flag was made above
}

// given takes what the flags say into the filter.
func (f *nodeFilter) given(cmd *cobra.Command) error {
	for _, s := range f.States {
		if !slices.Contains(stateNames(), s) {
			return usage("there is no state %q; see `metalctl explain states`", s)
		}
	}
	if cmd.Flags().Changed("maintenance") {
		f.Maintenance = &f.maintenance
	}
	if cmd.Flags().Changed("cordoned") {
		f.Cordoned = &f.cordoned
	}
	if f.limit < 0 {
		return usage("--limit is not negative")
	}
	if f.limit > 0 {
		f.PageSize = min(f.limit, 100)
	}
	return nil
}

func newListNodes(a *app, under string) *cobra.Command {
	var f nodeFilter
	cmd := &cobra.Command{
		Use: "nodes", Short: "List machines", Long: withExits(listNodesLong, remoteExits), Args: cobra.NoArgs,
		Example: "  metalctl " + under + "nodes --state ready --pool pool_01k…\n" +
			"  metalctl " + under + "nodes --label rack=7 -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.given(cmd); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			var from uint64
			if f.watch {
				if from, err = c.Position(cmd.Context()); err != nil {
					return err
				}
			}
			nodes, err := client.Collect(c.Nodes(cmd.Context(), f.NodeFilter), f.limit)
			if err != nil {
				return err
			}
			if err := nodeKind.list(a, nodes); err != nil || !f.watch {
				return err
			}
			return a.watchList(cmd.Context(), c, f.NodeFilter, from, nodes)
		},
	}
	f.add(cmd)
	return cmd
}

func stateNames() []string {
	names := make([]string, len(node.States))
	for i, row := range node.States {
		names[i] = string(row.State)
	}
	return names
}

// completeNodes offers the ids of machines, with their names.
func (a *app) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	nodes, err := client.Collect(c.Nodes(ctx, client.NodeFilter{}), mostCompletions)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	offers := make([]cobra.Completion, len(nodes))
	for i, n := range nodes {
		offers[i] = cobra.CompletionWithDesc(n.ID, n.Name+", "+n.Provision)
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
