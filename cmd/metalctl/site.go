package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var siteKind = kind[contract.Site]{
	id: func(s contract.Site) string { return s.ID },
	columns: []column[contract.Site]{
		{name: "SITE", of: func(s contract.Site) string { return s.ID }},
		{name: "NAME", of: func(s contract.Site) string { return s.Name }},
		{name: "TENANT", of: func(s contract.Site) string { return s.Tenant }},
		{name: "BMC-NETWORKS", of: networks},
		{name: "BOOT-AGENT", of: bootAgent},
		{name: "UPDATED", of: func(s contract.Site) string { return clock(s.UpdatedAt) }},
		{name: "LABELS", wide: true, of: func(s contract.Site) string { return labels(s.Labels) }},
		{name: "VERSION", wide: true, of: func(s contract.Site) string { return strconv.FormatUint(s.Version, 10) }},
	},
}

// bootAgent is who serves network boot.
func bootAgent(s contract.Site) string {
	if s.Boot == nil {
		return ""
	}
	return s.Boot.Agent
}

func networks(s contract.Site) string { return orElse(strings.Join(s.Policy.BMCNetworks, ","), "any") }

func newGetSite(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "site SITE", Short: "Show one site", Args: cobra.ExactArgs(1),
		Long: withExits("Shows one site.", remoteExits), Example: "  metalctl get site site_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, siteKind, func(c *client.Client) (contract.Site, error) {
				return c.GetSite(cmd.Context(), args[0])
			})
		},
	}
}

func newListSites(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "sites", Short: "List sites", Args: cobra.NoArgs,
		Long: withExits("Lists sites, newest first.", remoteExits), Example: "  metalctl list sites --tenant tenant_01k…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, siteKind, func(c *client.Client) ([]contract.Site, error) {
				return client.Collect(c.Sites(cmd.Context(), f.tenant), f.limit)
			})
		},
	}
	f.add(cmd, "tenant")
	return cmd
}

func newCreateSite(a *app) *cobra.Command {
	var f writeFlags
	var in contract.NewSite
	var pairs []string
	cmd := &cobra.Command{
		Use: "site NAME", Short: "Make a site", Args: cobra.ExactArgs(1),
		Long: withExits(`Makes a place with a network of BMCs. With --bmc-network only BMCs
within those networks can be enrolled at it.`,
			remoteExits),
		Example: "  metalctl create site berlin-1 --tenant tenant_01k… --bmc-network 10.20.0.0/16",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			in.Name = args[0]
			if in.Labels, err = parseLabels(pairs); err != nil {
				return err
			}
			return fetch(a, siteKind, func(c *client.Client) (s contract.Site, err error) {
				if in.Tenant, err = ownTenant(cmd.Context(), c, in.Tenant); err != nil {
					return s, err
				}
				return c.CreateSite(cmd.Context(), in, f.options()...)
			})
		},
	}
	f.create(cmd)
	cmd.Flags().StringVar(&in.Tenant, "tenant", "", ownTenantUse)
	cmd.Flags().StringArrayVarP(&pairs, "label", "l", nil, "label key=value; repeat for more")
	networksFlag(cmd, &in.Policy)
	return cmd
}

func newSitePolicy(a *app) *cobra.Command {
	var f writeFlags
	var in contract.SitePolicy
	cmd := &cobra.Command{
		Use: "site SITE", Short: "Replace the policy of a site", Args: cobra.ExactArgs(1),
		Long: withExits(`Replaces what a site allows. Without --bmc-network a BMC may have any address.
Machines that are enrolled already stay.`,
			remoteExits),
		Example: "  metalctl set-policy site site_01k… --bmc-network 10.20.0.0/16 --bmc-network fd00:20::/64",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, siteKind, func(c *client.Client) (contract.Site, error) {
				return c.ChangeSitePolicy(cmd.Context(), args[0], in, f.options()...)
			})
		},
	}
	f.change(cmd)
	networksFlag(cmd, &in)
	return cmd
}

func networksFlag(cmd *cobra.Command, p *contract.SitePolicy) {
	cmd.Flags().StringSliceVar(&p.BMCNetworks, "bmc-network", nil, "CIDR in which its BMCs must lie; repeat for more")
}
