package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/principal"
)

// addAccess adds what says who may do what.
func addAccess(root *cobra.Command, a *app) {
	root.AddCommand(newWhoAmI(a), newBind(a), newUnbind(a), newIssueToken(a), newRevokeToken(a))
	root.AddCommand(
		newPrincipalSwitch(a, "enable", "Let a principal's tokens work again", (*client.Client).EnablePrincipal),
		newPrincipalSwitch(a, "disable", "Stop all of a principal's tokens", (*client.Client).DisablePrincipal),
	)
}

var whoKind = kind[contract.WhoAmI]{
	id: func(w contract.WhoAmI) string { return w.Principal },
	columns: []column[contract.WhoAmI]{
		{name: "PRINCIPAL", of: func(w contract.WhoAmI) string { return w.Principal }},
		{name: "NAME", of: func(w contract.WhoAmI) string { return w.Name }},
		{name: "KIND", of: func(w contract.WhoAmI) string { return w.Kind }},
		{name: "TENANT", of: func(w contract.WhoAmI) string { return w.Tenant }},
		{name: "BINDINGS", of: func(w contract.WhoAmI) string { return bindings(w.Bindings) }},
	},
}

func newWhoAmI(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show who the credential is and what it may do", GroupID: groupAccess, Args: cobra.NoArgs,
		Long:    withExits("Shows the principal that the token belongs to, with its bindings.", remoteExits),
		Example: "  metalctl whoami",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetch(a, whoKind, func(c *client.Client) (contract.WhoAmI, error) { return c.WhoAmI(cmd.Context()) })
		},
	}
}

const bindLong = `Grants actions at a scope: a tenant and everything in it, a site and the machines at it, a pool
and its machines, or one
machine. A binding on the root tenant reaches everything. See metalctl explain actions.`

var madeKind = kind[contract.MadeBinding]{
	id: func(b contract.MadeBinding) string { return b.ID },
	columns: []column[contract.MadeBinding]{
		{name: "BINDING", of: func(b contract.MadeBinding) string { return b.ID }},
		{name: "PRINCIPAL", of: func(b contract.MadeBinding) string { return b.Principal }},
		{name: "GRANTS", of: func(b contract.MadeBinding) string { return bindings([]contract.Binding{b.Binding}) }},
	},
}

func newBind(a *app) *cobra.Command {
	var f writeFlags
	var actions []string
	scopes := map[string]*string{}
	cmd := &cobra.Command{
		Use: "bind PRINCIPAL --action ACTION --tenant|--site|--pool|--node ID", Short: "Grant actions to a principal",
		Long: withExits(bindLong, remoteExits), GroupID: groupAccess, Args: cobra.ExactArgs(1),
		Example: "  metalctl bind prn_01k… --action 'compute:nodes:*' --pool pool_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := contract.NewBinding{Actions: actions}
			for kind, id := range scopes {
				if *id != "" {
					in.Scope = contract.Scope{Kind: kind, ID: *id}
				}
			}
			if in.Scope.ID == "" || len(actions) == 0 {
				return usage("--action and one of --tenant, --site, --pool, --node are needed")
			}
			return fetch(a, madeKind, func(c *client.Client) (contract.MadeBinding, error) {
				return c.Bind(cmd.Context(), args[0], in, f.options()...)
			})
		},
	}
	f.change(cmd)
	cmd.Flags().StringSliceVar(&actions, "action", nil,
		"an action, or a prefix such as compute:nodes:* or *; repeat for more")
	var names []string
	for _, kind := range principal.ScopeKinds {
		scopes[string(kind)] = cmd.Flags().String(string(kind), "", "at this "+string(kind))
		names = append(names, string(kind))
	}
	cmd.MarkFlagsMutuallyExclusive(names...)
	_ = cmd.RegisterFlagCompletionFunc("action", words(actionNames()...)) // the flag was made above
	return cmd
}

func actionNames() []string {
	names := []string{"*"}
	for _, row := range principal.Actions {
		names = append(names, string(row.Action))
	}
	return names
}

func newUnbind(a *app) *cobra.Command {
	var f writeFlags
	cmd := &cobra.Command{
		Use: "unbind PRINCIPAL BINDING", Short: "Take a binding away", GroupID: groupAccess, Args: cobra.ExactArgs(2),
		Long:    withExits("Takes a binding away from a principal, at once. See get principal for the ids.", remoteExits),
		Example: "  metalctl unbind prn_01k… bnd_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, principalKind, func(c *client.Client) (contract.Principal, error) {
				return c.Unbind(cmd.Context(), args[0], args[1], f.options()...)
			})
		},
	}
	f.change(cmd)
	return cmd
}

func newPrincipalSwitch(a *app, name, short string,
	apply func(*client.Client, context.Context, string, ...client.Option) (contract.Principal, error),
) *cobra.Command {
	var f writeFlags
	cmd := &cobra.Command{
		Use: name + " PRINCIPAL", Short: short, GroupID: groupAccess, Args: cobra.ExactArgs(1),
		Long:    withExits(short+". Its tokens and bindings stay as they are. Twice changes nothing.", remoteExits),
		Example: "  metalctl " + name + " prn_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, principalKind, func(c *client.Client) (contract.Principal, error) {
				return apply(c, cmd.Context(), args[0], f.options()...)
			})
		},
	}
	f.change(cmd)
	return cmd
}

const issueLong = `Makes a bearer token for a principal and prints it on standard output, alone on its line: it is
shown this once and stored
nowhere. With -o json or yaml everything about it is printed, the token among it. Write it to a file that only you
can read.`

func newIssueToken(a *app) *cobra.Command {
	var f writeFlags
	var in contract.NewToken
	var life time.Duration
	cmd := &cobra.Command{
		Use: "issue-token PRINCIPAL", Short: "Make a bearer token", GroupID: groupAccess, Args: cobra.ExactArgs(1),
		Long:    withExits(issueLong, remoteExits),
		Example: "  (umask 077; metalctl issue-token prn_01k… --note ci --expires-in 720h > ci.token)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if life < 0 || life%time.Second != 0 {
				return usage("--expires-in is a number of whole seconds, such as 720h")
			}
			in.ExpiresInSeconds = int64(life / time.Second)
			return a.issueToken(cmd.Context(), args[0], in, f)
		},
	}
	f.change(cmd)
	cmd.Flags().StringVar(&in.Note, "note", "", "what it is for")
	cmd.Flags().DurationVar(&life, "expires-in", 0, "how long it works; 0: until it is revoked")
	return cmd
}

func (a *app) issueToken(ctx context.Context, principal string, in contract.NewToken, f writeFlags) error {
	if a.flag.output == "name" {
		return usage("-o name would lose the token, which is shown only once")
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	issued, err := c.IssueToken(ctx, principal, in, f.options()...)
	if err != nil {
		return err
	}
	switch a.flag.output {
	case "json", "yaml":
		return a.document(issued)
	}
	a.say("token %s of %s, shown this once:", issued.ID, issued.Principal)
	_, err = fmt.Fprintln(a.out, issued.Token)
	return err
}

func newRevokeToken(a *app) *cobra.Command {
	var f writeFlags
	cmd := &cobra.Command{
		Use: "revoke-token PRINCIPAL TOKEN", Short: "End a token", GroupID: groupAccess, Args: cobra.ExactArgs(2),
		Long:    withExits("Ends a token, by its id (tok_…), at once. See get principal for the ids.", remoteExits),
		Example: "  metalctl revoke-token prn_01k… tok_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, principalKind, func(c *client.Client) (contract.Principal, error) {
				return c.RevokeToken(cmd.Context(), args[0], args[1], f.options()...)
			})
		},
	}
	f.change(cmd)
	return cmd
}
