package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

func newAbort(a *app) *cobra.Command {
	return newReasoned(a, false, (*client.Client).Abort, verb{
		name: "abort", short: "Stop the running workflow and fail the machine",
		long: `Stops what runs on the machine: the machine is failed at once, with maintenance on; the workflow's own
cleanup still runs.
What was half done stays half done until recover.`,
		example: "  metalctl abort node_01k… --reason 'wrong profile'",
	})
}

func newAbandon(a *app) *cobra.Command {
	return newReasoned(a, true, (*client.Client).Abandon, verb{
		name: "abandon", short: "Retire a failed machine that is gone or dead",
		destroys: "the machine leaves for good, recorded as never wiped",
		long: `Retires a failed machine that cannot be wiped any more: it is gone, or dead. Nothing is sent to it.
Whatever is on its
disks stays there, and the record says so. Its addresses become free.`,
		example: "  metalctl abandon node_01k… --reason 'burnt in the fire of rack 7'",
	})
}

func newCordon(a *app) *cobra.Command {
	return newReasoned(a, false, (*client.Client).Cordon, verb{
		name: "cordon", short: "Keep new work off the machine",
		long:    `Lets nothing new be placed on the machine. What runs on it is not touched.`,
		example: "  metalctl cordon node_01k… --reason 'kernel update tonight'",
	})
}

func newTrustBMC(a *app) *cobra.Command {
	var in contract.Certificate
	v := verb{
		name: "trust-bmc", short: "Trust another certificate of the machine's BMC",
		long: `Pins another certificate of the machine's BMC than the one that was seen first, such as after a renewal. Until
then every step that
talks to the BMC fails with reason certificate-changed. Find out first that nobody else answers at the address.`,
		example: "  metalctl trust-bmc node_01k… --fingerprint 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	}
	v.flags = func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&in.Fingerprint, "fingerprint", "", "SHA-256 of the certificate in lower-case hex (needed)")
	}
	v.check = func() error {
		if in.Fingerprint == "" {
			return usage("--fingerprint is needed")
		}
		return nil
	}
	v.apply = func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
		return c.TrustBMC(ctx, id, in, o...)
	}
	return v.command(a)
}

// newReasoned makes a verb that takes a reason.
func newReasoned(a *app, needed bool,
	apply func(*client.Client, context.Context, string, contract.Reason, ...client.Option) (contract.Node, error), v verb,
) *cobra.Command {
	var in contract.Reason
	v.flags = func(cmd *cobra.Command) {
		use := "why, in up to 512 characters"
		if needed {
			use += " (needed)"
		}
		cmd.Flags().StringVar(&in.Reason, "reason", "", use)
	}
	v.check = func() error {
		if needed && strings.TrimSpace(in.Reason) == "" {
			return usage("--reason is needed")
		}
		return nil
	}
	v.apply = func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
		return apply(c, ctx, id, in, o...)
	}
	return v.command(a)
}

func newPower(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "power", Short: "Ask for a power action", GroupID: groupVerbs,
		Long: withExits(`Asks a machine's BMC for a power action. While a workflow runs on the machine it is a conflict
(exit 4).`,
			watchExits),
	}
	does := map[node.PowerAction]string{
		node.ActionOn:       "Powers the machine on.",
		node.ActionOff:      "Cuts the machine's power at once. What is not yet on its disks is lost.",
		node.ActionGraceful: "Asks the installed OS to shut down and power off, with a deadline.",
		node.ActionCycle:    "Cuts the machine's power at once and turns it on again. What is not yet on its disks is lost.",
		node.ActionReset:    "Resets the machine at once, without power loss. What is not yet on its disks is lost.",
	}
	for _, action := range node.PowerActions {
		v := verb{
			name: string(action), under: "power", short: strings.Split(does[action], ".")[0], long: does[action],
			example: "  metalctl power " + string(action) + " node_01k…",
			apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
				return c.Power(ctx, id, contract.Power{Action: string(action)}, o...)
			},
		}
		cmd.AddCommand(v.command(a))
	}
	return cmd
}

func newMaintenance(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "maintenance", Short: "Turn maintenance on or off", GroupID: groupVerbs,
		Long: withExits(`Takes a machine from scheduling while somebody works on it, or gives it back. Nothing is sent to
the machine. A machine
that fails is in maintenance until somebody turns it off.`, watchExits),
	}
	on := newReasoned(a, false, func(
		c *client.Client, ctx context.Context, id string, in contract.Reason, o ...client.Option,
	) (contract.Node, error) {
		return c.SetMaintenance(ctx, id, contract.Maintenance{On: true, Reason: in.Reason}, o...)
	}, verb{
		name: "on", under: "maintenance", short: "Take the machine from scheduling",
		long:    "Turns maintenance on. What runs on the machine is not touched.",
		example: "  metalctl maintenance on node_01k… --reason 'new NIC'",
	})
	off := verb{
		name: "off", under: "maintenance", short: "Give the machine back to scheduling", long: "Turns maintenance off.",
		example: "  metalctl maintenance off node_01k…",
		apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
			return c.SetMaintenance(ctx, id, contract.Maintenance{}, o...)
		},
	}.command(a)
	cmd.AddCommand(on, off)
	return cmd
}
