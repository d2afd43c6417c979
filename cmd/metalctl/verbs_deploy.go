package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

func newDeploy(a *app) *cobra.Command {
	var text string
	var in contract.Deploy
	v := verb{
		name: "deploy", short: "Install a version of a profile on a ready machine",
		long: `Installs what a profile says on a ready machine, whose disks were proven wiped before: its
image is fetched, verified and written to a disk, and the machine boots it. The profile's version is pinned. What the
profile would miss, such as an image that was withdrawn, is told at once, and the machine stays ready. It ends deployed; if it fails,
recover wipes what was written.`,
		example: "  metalctl deploy node_01k… --profile ubuntu-24@3 --watch",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVarP(&text, "profile", "p", "", "profile and version: ID@VERSION (needed)")
			_ = cmd.RegisterFlagCompletionFunc("profile", a.completeProfiles(deployable)) // the flag was made above
		},
		check: func() (err error) {
			in, err = parseProfile(text)
			return err
		},
		apply: func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
			return c.Deploy(ctx, id, in, o...)
		},
	}
	return v.command(a)
}

func parseProfile(text string) (contract.Deploy, error) {
	id, number, ok := strings.Cut(text, "@")
	version, err := strconv.Atoi(number)
	if !ok || id == "" || err != nil || version < 1 {
		return contract.Deploy{}, usage("--profile is of the form ID@VERSION, such as ubuntu-24@3")
	}
	return contract.Deploy{Profile: id, Version: version}, nil
}

func newUndeploy(a *app) *cobra.Command {
	return newWipe(a, wipeVerb{
		methods: node.WipeMethods,
		verb: verb{
			name: "undeploy", short: "Wipe the disks and give the machine back", destroys: wipesDisks,
			long: `Releases a machine that is deployed or in rescue: it boots the ramdisk, its disks are wiped and read
back, and it is
powered off. It ends ready, with the wipe proven; after --wipe none it is commissioned instead, which wipes too.`,
			example: "  metalctl undeploy node_01k… --wipe secure-erase --watch",
		},
		apply: (*client.Client).Undeploy,
	})
}

func newRetire(a *app) *cobra.Command {
	return newWipe(a, wipeVerb{
		methods: slices.DeleteFunc(slices.Clone(node.WipeMethods), func(m node.WipeMethod) bool {
			return m == node.WipeNone
		}),
		verb: verb{
			name: "retire", short: "Take a machine out for good",
			destroys: "the machine leaves for good, and the disks are wiped",
			long: `Takes a machine that is ready or failed out for good: a last wipe, power off, its certificates revoked. A
machine that is
joined or adopted is retired at once and its disks are left alone: they are not ours to wipe. Its addresses become
free.`,
			example: "  metalctl retire node_01k… --wipe crypto-erase",
		},
		apply: (*client.Client).Retire,
	})
}

// wipeVerb is a verb that says how the disks are wiped.
type wipeVerb struct {
	verb
	methods []node.WipeMethod
	apply   func(*client.Client, context.Context, string, contract.Wipe, ...client.Option) (contract.Node, error)
}

func newWipe(a *app, w wipeVerb) *cobra.Command {
	var in contract.Wipe
	methods := make([]string, len(w.methods))
	for i, m := range w.methods {
		methods[i] = string(m)
	}
	v := w.verb
	v.flags = func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&in.Method, "wipe", "", "how: "+strings.Join(methods, ", ")+" (default quick)")
		_ = cmd.RegisterFlagCompletionFunc("wipe", words(methods...)) // the flag was made above
	}
	v.check = func() error {
		if in.Method != "" && !slices.Contains(methods, in.Method) {
			return usage("--wipe is one of %s; not %q", strings.Join(methods, ", "), in.Method)
		}
		return nil
	}
	v.apply = func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
		return w.apply(c, ctx, id, in, o...)
	}
	return v.command(a)
}
