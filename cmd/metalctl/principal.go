package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/principal"
)

var principalKind = kind[contract.Principal]{
	id: func(p contract.Principal) string { return p.ID },
	columns: []column[contract.Principal]{
		{name: "PRINCIPAL", of: func(p contract.Principal) string { return p.ID }},
		{name: "NAME", of: func(p contract.Principal) string { return p.Name }},
		{name: "KIND", of: func(p contract.Principal) string { return p.Kind }},
		{name: "TENANT", of: func(p contract.Principal) string { return p.Tenant }},
		{name: "MARKS", of: func(p contract.Principal) string { return disabled(p.Disabled) }},
		{name: "UPDATED", of: func(p contract.Principal) string { return clock(p.UpdatedAt) }},
		{name: "BINDINGS", wide: true, of: func(p contract.Principal) string { return bindings(p.Bindings) }},
		{name: "TOKENS", wide: true, of: tokens},
		{name: "VERSION", wide: true, of: func(p contract.Principal) string { return strconv.FormatUint(p.Version, 10) }},
	},
}

func disabled(yes bool) string {
	if yes {
		return "disabled"
	}
	return ""
}

func bindings(all []contract.Binding) string {
	var parts []string
	for _, b := range all {
		parts = append(parts, b.ID+": "+strings.Join(b.Actions, ",")+" at "+b.Scope.Kind+" "+b.Scope.ID)
	}
	return strings.Join(parts, "; ")
}

func tokens(p contract.Principal) string {
	var parts []string
	for _, t := range p.Tokens {
		part := t.ID
		if t.Note != "" {
			part += " (" + t.Note + ")"
		}
		if t.ExpiresAt != nil {
			part += " until " + clock(*t.ExpiresAt)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func newGetPrincipal(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "principal PRINCIPAL", Short: "Show one principal with its tokens' ids and its bindings",
		Args: cobra.ExactArgs(1),
		Long: withExits(`Shows one caller of the API. Its tokens are shown by their ids: the tokens themselves are
stored nowhere.`,
			remoteExits),
		Example: "  metalctl get principal prn_01k… -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, principalKind, func(c *client.Client) (contract.Principal, error) {
				return c.GetPrincipal(cmd.Context(), args[0])
			})
		},
	}
}

func newListPrincipals(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "principals", Short: "List principals", Args: cobra.NoArgs,
		Long:    withExits("Lists the callers of the API, newest first.", remoteExits),
		Example: "  metalctl list principals --tenant tenant_01k…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, principalKind, func(c *client.Client) ([]contract.Principal, error) {
				return client.Collect(c.Principals(cmd.Context(), f.tenant), f.limit)
			})
		},
	}
	f.add(cmd, "tenant")
	return cmd
}

func newCreatePrincipal(a *app) *cobra.Command {
	var f writeFlags
	var in contract.NewPrincipal
	cmd := &cobra.Command{
		Use: "principal NAME --kind person|service", Short: "Make a principal", Args: cobra.ExactArgs(1),
		Long: withExits(`Makes a caller of the API, without a token and without a binding: it can do nothing yet. See
bind and issue-token.`,
			remoteExits),
		Example: "  metalctl create principal ci --tenant tenant_01k… --kind service",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(principal.Kinds, principal.Kind(in.Kind)) {
				return usage("--kind is person or service")
			}
			in.Name = args[0]
			return fetch(a, principalKind, func(c *client.Client) (p contract.Principal, err error) {
				if in.Tenant, err = ownTenant(cmd.Context(), c, in.Tenant); err != nil {
					return p, err
				}
				return c.CreatePrincipal(cmd.Context(), in, f.options()...)
			})
		},
	}
	f.create(cmd)
	cmd.Flags().StringVar(&in.Tenant, "tenant", "", ownTenantUse)
	cmd.Flags().StringVar(&in.Kind, "kind", "", "person or service (needed)")
	_ = cmd.RegisterFlagCompletionFunc("kind", words("person", "service")) // the flag was made above
	return cmd
}
