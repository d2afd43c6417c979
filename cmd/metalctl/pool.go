package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/pool"
)

var poolKind = kind[contract.Pool]{
	id: func(p contract.Pool) string { return p.ID },
	columns: []column[contract.Pool]{
		{name: "POOL", of: func(p contract.Pool) string { return p.ID }},
		{name: "NAME", of: func(p contract.Pool) string { return p.Name }},
		{name: "SITE", of: func(p contract.Pool) string { return p.Site }},
		{name: "AGENT", of: func(p contract.Pool) string { return p.Policy.Agent }},
		{name: "UPDATED", of: func(p contract.Pool) string { return clock(p.UpdatedAt) }},
		{name: "TENANT", wide: true, of: func(p contract.Pool) string { return p.Tenant }},
		{name: "HARDWARE-PROFILE", wide: true, of: func(p contract.Pool) string { return p.Policy.HardwareProfile }},
		{name: "UNVERIFIED-RELEASE", wide: true, of: func(p contract.Pool) string { return p.Policy.UnverifiedRelease }},
		{name: "LABELS", wide: true, of: func(p contract.Pool) string { return labels(p.Labels) }},
		{name: "VERSION", wide: true, of: func(p contract.Pool) string { return strconv.FormatUint(p.Version, 10) }},
	},
}

func newGetPool(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "pool POOL", Short: "Show one pool", Args: cobra.ExactArgs(1),
		Long: withExits("Shows one pool.", remoteExits), Example: "  metalctl get pool pool_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, poolKind, func(c *client.Client) (contract.Pool, error) {
				return c.GetPool(cmd.Context(), args[0])
			})
		},
	}
}

func newListPools(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "pools", Short: "List pools", Args: cobra.NoArgs,
		Long: withExits("Lists pools, newest first.", remoteExits), Example: "  metalctl list pools --site site_01k…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, poolKind, func(c *client.Client) ([]contract.Pool, error) {
				return client.Collect(c.Pools(cmd.Context(), f.tenant, f.site), f.limit)
			})
		},
	}
	f.add(cmd, "tenant", "site")
	return cmd
}

func newCreatePool(a *app) *cobra.Command {
	var f writeFlags
	var in contract.NewPool
	var pairs []string
	var unverified bool
	cmd := &cobra.Command{
		Use: "pool NAME --site SITE", Short: "Make a pool", Args: cobra.ExactArgs(1),
		Long: withExits(`Makes a group of machines at a site, under one policy.
The site is the tenant's own or the root tenant's.`,
			remoteExits),
		Example: "  metalctl create pool gpu --tenant tenant_01k… --site site_01k… --hardware-profile dell-r760",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if in.Site == "" {
				return usage("--site is needed")
			}
			in.Name, in.Policy.UnverifiedRelease = args[0], unverifiedPolicy(unverified)
			if in.Labels, err = parseLabels(pairs); err != nil {
				return err
			}
			return fetch(a, poolKind, func(c *client.Client) (p contract.Pool, err error) {
				if in.Tenant, err = ownTenant(cmd.Context(), c, in.Tenant); err != nil {
					return p, err
				}
				return c.CreatePool(cmd.Context(), in, f.options()...)
			})
		},
	}
	f.create(cmd)
	cmd.Flags().StringVar(&in.Tenant, "tenant", "", ownTenantUse)
	cmd.Flags().StringVar(&in.Site, "site", "", "where its machines are (needed)")
	cmd.Flags().StringArrayVarP(&pairs, "label", "l", nil, "label key=value; repeat for more")
	poolPolicyFlags(cmd, &in.Policy, &unverified)
	return cmd
}

func newPoolPolicy(a *app) *cobra.Command {
	var f writeFlags
	var in contract.PoolPolicy
	var unverified bool
	cmd := &cobra.Command{
		Use: "pool POOL", Short: "Replace the policy of a pool", Args: cobra.ExactArgs(1),
		Long: withExits(`Replaces what a pool decides for its machines.

With --allow-unverified-release, for --agent none only, a machine may become ready again WITHOUT A PROVEN WIPE:
whoever gets
it next may find the data of whoever had it before. Its view says so until the next verified wipe.`, remoteExits),
		Example: "  metalctl set-policy pool pool_01k… --hardware-profile dell-r760 --if-match 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			in.UnverifiedRelease = unverifiedPolicy(unverified)
			return fetch(a, poolKind, func(c *client.Client) (contract.Pool, error) {
				return c.ChangePoolPolicy(cmd.Context(), args[0], in, f.options()...)
			})
		},
	}
	f.change(cmd)
	poolPolicyFlags(cmd, &in, &unverified)
	return cmd
}

func poolPolicyFlags(cmd *cobra.Command, p *contract.PoolPolicy, unverified *bool) {
	var agents []string
	for _, agent := range pool.Agents {
		agents = append(agents, string(agent))
	}
	cmd.Flags().StringVar(&p.Agent, "agent", "", "required (default) or none: machines without an agent of ours")
	cmd.Flags().StringVar(&p.HardwareProfile, "hardware-profile", "", "which drivers its machines use")
	cmd.Flags().BoolVar(unverified, "allow-unverified-release", false,
		"with --agent none: machines become ready without a proven wipe")
	_ = cmd.RegisterFlagCompletionFunc("agent", words(agents...)) // the flag was made above
}

func unverifiedPolicy(allowed bool) string {
	if allowed {
		return pool.AllowUnverifiedRelease
	}
	return ""
}
