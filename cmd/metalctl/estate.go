package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
)

// addEstate adds what makes and changes tenants, sites, pools and principals.
func addEstate(root *cobra.Command, a *app) {
	create := &cobra.Command{
		Use: "create", Short: "Make a tenant, a site, a pool or a principal", GroupID: groupEstate,
		Long: withExits("Makes a tenant, a site, a pool or a principal. No machine is touched.", remoteExits),
	}
	create.AddCommand(newCreateTenant(a), newCreateSite(a), newCreatePool(a), newCreatePrincipal(a))
	policy := &cobra.Command{
		Use: "set-policy", Short: "Replace the policy of a tenant, a site or a pool", GroupID: groupEstate,
		Long: withExits(`Replaces a policy as a whole: what is not given is empty afterwards. Machines that are there
already stay as they are;
the policy counts for what is decided from now on.`, remoteExits),
	}
	policy.AddCommand(newTenantPolicy(a), newSitePolicy(a), newPoolPolicy(a))
	root.AddCommand(create, policy)
}

// writeFlags are those of every command that changes something beside machines.
type writeFlags struct {
	ifMatch uint64
	key     string
}

// create adds the flags of a creation; change those of a change to something that exists.
func (f *writeFlags) create(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "name this request: the same again gives the first outcome")
}

func (f *writeFlags) change(cmd *cobra.Command) {
	f.create(cmd)
	cmd.Flags().Uint64Var(&f.ifMatch, "if-match", 0, "only if it is still at this version, else exit 4")
}

func (f *writeFlags) options() []client.Option {
	return (&verbFlags{ifMatch: f.ifMatch, key: f.key}).options()
}

const ownTenantUse = "its owner (default: the tenant of your credential)"

// ownTenant is the tenant that was given, else the caller's own.
func ownTenant(ctx context.Context, c *client.Client, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	who, err := c.WhoAmI(ctx)
	return who.Tenant, err
}

// listFlags are those of every list but that of machines.
type listFlags struct {
	tenant, site string
	limit        int
}

func (f *listFlags) add(cmd *cobra.Command, narrows ...string) {
	for _, n := range narrows {
		switch n {
		case "tenant":
			cmd.Flags().StringVar(&f.tenant, "tenant", "", "of this tenant")
		case "site":
			cmd.Flags().StringVar(&f.site, "site", "", "at this site")
		}
	}
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most this many; 0: all")
}
