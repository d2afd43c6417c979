package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var tenantKind = kind[contract.Tenant]{
	id: func(t contract.Tenant) string { return t.ID },
	columns: []column[contract.Tenant]{
		{name: "TENANT", of: func(t contract.Tenant) string { return t.ID }},
		{name: "NAME", of: func(t contract.Tenant) string { return t.Name }},
		{name: "SIGNERS", of: signers},
		{name: "UPDATED", of: func(t contract.Tenant) string { return clock(t.UpdatedAt) }},
		{name: "LABELS", wide: true, of: func(t contract.Tenant) string { return labels(t.Labels) }},
		{name: "VERSION", wide: true, of: func(t contract.Tenant) string { return strconv.FormatUint(t.Version, 10) }},
	},
}

func signers(t contract.Tenant) string {
	var names []string
	for _, s := range t.Policy.ImageSigners {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}

func newGetTenant(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "tenant TENANT", Short: "Show one tenant", Args: cobra.ExactArgs(1),
		Long: withExits("Shows one tenant.", remoteExits), Example: "  metalctl get tenant tenant_01k… -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, tenantKind, func(c *client.Client) (contract.Tenant, error) {
				return c.GetTenant(cmd.Context(), args[0])
			})
		},
	}
}

func newListTenants(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "tenants", Short: "List tenants", Args: cobra.NoArgs,
		Long: withExits("Lists tenants, newest first.", remoteExits), Example: "  metalctl list tenants",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, tenantKind, func(c *client.Client) ([]contract.Tenant, error) {
				return client.Collect(c.Tenants(cmd.Context()), f.limit)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newCreateTenant(a *app) *cobra.Command {
	var f writeFlags
	var pairs, keys []string
	cmd := &cobra.Command{
		Use: "tenant NAME", Short: "Make a tenant", Args: cobra.ExactArgs(1),
		Long:    withExits("Makes an owner of machines. What belongs to one tenant does not exist for another.", remoteExits),
		Example: "  metalctl create tenant acme --image-signer release=release.pem",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := contract.NewTenant{Name: args[0]}
			var err error
			if in.Labels, err = parseLabels(pairs); err != nil {
				return err
			}
			if in.Policy.ImageSigners, err = readSigners(keys); err != nil {
				return err
			}
			return fetch(a, tenantKind, func(c *client.Client) (contract.Tenant, error) {
				return c.CreateTenant(cmd.Context(), in, f.options()...)
			})
		},
	}
	f.create(cmd)
	cmd.Flags().StringArrayVarP(&pairs, "label", "l", nil, "label key=value; repeat for more")
	signerFlag(cmd, &keys)
	return cmd
}

func newTenantPolicy(a *app) *cobra.Command {
	var f writeFlags
	var keys []string
	cmd := &cobra.Command{
		Use: "tenant TENANT", Short: "Replace the policy of a tenant", Args: cobra.ExactArgs(1),
		Long: withExits(`Replaces what a tenant trusts: the public keys whose signatures on images it accepts. Without
--image-signer it trusts
none.`, remoteExits),
		Example: "  metalctl set-policy tenant tenant_01k… --image-signer release=release.pem --if-match 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			trusted, err := readSigners(keys)
			if err != nil {
				return err
			}
			return fetch(a, tenantKind, func(c *client.Client) (contract.Tenant, error) {
				policy := contract.TenantPolicy{ImageSigners: trusted}
				return c.ChangeTenantPolicy(cmd.Context(), args[0], policy, f.options()...)
			})
		},
	}
	f.change(cmd)
	signerFlag(cmd, &keys)
	return cmd
}

func signerFlag(cmd *cobra.Command, keys *[]string) {
	cmd.Flags().StringArrayVar(keys, "image-signer", nil,
		"NAME=FILE: a public key (PEM) to trust on images; repeat for more")
}

func readSigners(keys []string) ([]contract.ImageSigner, error) {
	var trusted []contract.ImageSigner
	for _, pair := range keys {
		name, file, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage("--image-signer is of the form NAME=FILE, not %q", pair)
		}
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, usage("the key of %s cannot be read: %s", name, err)
		}
		trusted = append(trusted, contract.ImageSigner{Name: name, PublicKey: string(pem)})
	}
	return trusted, nil
}

// fetch asks for one thing and shows it.
func fetch[T any](a *app, k kind[T], ask func(*client.Client) (T, error)) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	item, err := ask(c)
	if err != nil {
		return err
	}
	return k.one(a, item)
}

// fetchAll asks for several things and shows them.
func fetchAll[T any](a *app, k kind[T], ask func(*client.Client) ([]T, error)) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	items, err := ask(c)
	if err != nil {
		return err
	}
	return k.list(a, items)
}
