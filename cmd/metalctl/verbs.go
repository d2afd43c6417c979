package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

func addVerbs(root *cobra.Command, a *app) {
	root.AddCommand(newEnroll(a))
	for _, v := range plainVerbs() {
		root.AddCommand(v.command(a))
	}
	root.AddCommand(
		newDeploy(a), newUndeploy(a), newRetire(a), newAbort(a), newAbandon(a),
		newPower(a), newMaintenance(a), newCordon(a), newTrustBMC(a), newSetBMC(a),
	)
}

const wipesDisks = "the disks are wiped"

// plainVerbs are those that take nothing but the machine.
func plainVerbs() []verb {
	return []verb{
		{
			name: "manage", short: "Verify the BMC again, then inspect and commission", destroys: wipesDisks,
			long: `Takes a ready machine back to enrolling: its BMC, the credentials and the machine's identity are verified
again, its
hardware is inspected, and it is commissioned, which burns it in and wipes its disks. It ends ready.`,
			example: "  metalctl manage node_01k… --yes --watch",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Manage(ctx, id, o...)
			},
		},
		{
			name: "inspect", short: "Inspect again, then commission", destroys: wipesDisks,
			long: `Takes a ready machine back to inspecting: the inventory is taken anew through the BMC and from the
ramdisk, and the
machine is commissioned, which burns it in and wipes its disks. It ends ready.`,
			example: "  metalctl inspect node_01k… --yes",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Inspect(ctx, id, o...)
			},
		},
		{
			name: "provide", short: "Commission again", destroys: wipesDisks,
			long:    `Takes a ready machine back to commissioning: it is burnt in and its disks are wiped. It ends ready.`,
			example: "  metalctl provide node_01k… --yes",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Provide(ctx, id, o...)
			},
		},
		{
			name: "rescue", short: "Boot the rescue ramdisk beside the installed OS",
			long: `Reboots a deployed machine into the rescue ramdisk, to repair what is installed. The disks are not
touched. It stays in
rescue until unrescue or undeploy.`,
			example: "  metalctl rescue node_01k… --watch",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Rescue(ctx, id, o...)
			},
		},
		{
			name: "unrescue", short: "Leave rescue for the installed OS",
			long: `Asks to reboot a machine in rescue into its installed OS. The disks are not touched. Asking twice changes
nothing;
while the rescue ramdisk is still booting it is a conflict (exit 4).`,
			example: "  metalctl unrescue node_01k… --watch",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Unrescue(ctx, id, o...)
			},
		},
		{
			name: "recover", short: "Move a failed machine to its last stable point",
			destroys: "where a deploy or a wipe failed, the disks are wiped",
			long: `Moves a failed machine to where it can go on from, never straight to ready: what failed before ready runs
again, a failed
deploy is released, a failed rescue returns to deployed (metalctl explain states failed). Maintenance stays on.`,
			example: "  metalctl recover node_01k… --yes --watch",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Recover(ctx, id, o...)
			},
		},
		{
			name: "uncordon", short: "Let new work on the machine again",
			long:    `Clears the machine's cordon. What runs on it is not touched. Uncordoning twice changes nothing.`,
			example: "  metalctl uncordon node_01k…",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Uncordon(ctx, id, o...)
			},
		},
	}
}
