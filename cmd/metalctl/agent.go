package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var agentKind = kind[contract.Agent]{
	id: func(g contract.Agent) string { return g.ID },
	columns: []column[contract.Agent]{
		{name: "AGENT", of: func(g contract.Agent) string { return g.ID }},
		{name: "ROLE", of: func(g contract.Agent) string { return g.Role }},
		{name: "NODE", of: func(g contract.Agent) string { return g.Node }},
		{name: "CONNECTED", of: func(g contract.Agent) string { return yes(g.Connected) }, shade: connectedShade},
		{name: "LAST-CONTACT", of: func(g contract.Agent) string { return optionalClock(g.LastContact) }},
		{name: "BOOT-LEASE", of: bootLease},
		{name: "DOING", of: func(g contract.Agent) string { return strings.Join(g.Doing, ",") }},
		{name: "SITE", wide: true, of: func(g contract.Agent) string { return g.Site }},
		{name: "NAME", wide: true, of: func(g contract.Agent) string { return g.Name }},
		{name: "SOFTWARE", wide: true, of: func(g contract.Agent) string { return g.Software }},
		{name: "BOOT", wide: true, of: func(g contract.Agent) string { return g.BootID }},
		{name: "BOOT-SERVER", wide: true, of: bootServer},
		{name: "MACS", wide: true, of: func(g contract.Agent) string { return strings.Join(g.MACs, ",") }},
		{name: "JOINED", wide: true, of: func(g contract.Agent) string { return clock(g.JoinedAt) }},
		{name: "SESSION", wide: true, of: func(g contract.Agent) string { return optionalClock(g.SessionAt) }},
		{name: "REVOKED", wide: true, of: func(g contract.Agent) string { return g.Revoked }},
	},
}

var joinTokenKind = kind[contract.JoinToken]{
	id: func(t contract.JoinToken) string { return t.ID },
	columns: []column[contract.JoinToken]{
		{name: "JOIN-TOKEN", of: func(t contract.JoinToken) string { return t.ID }},
		{name: "ROLE", of: func(t contract.JoinToken) string { return t.Role }},
		{name: "SITE", of: func(t contract.JoinToken) string { return t.Site }},
		{name: "USES", of: func(t contract.JoinToken) string { return strconv.Itoa(t.Uses) + "/" + strconv.Itoa(t.MaxUses) }},
		{name: "EXPIRES", of: func(t contract.JoinToken) string { return clock(t.ExpiresAt) }},
		{name: "REVOKED", of: func(t contract.JoinToken) string { return yes(t.Revoked) }},
		{name: "NODE", wide: true, of: func(t contract.JoinToken) string { return t.Node }},
		{name: "POOL", wide: true, of: func(t contract.JoinToken) string { return t.Pool }},
		{name: "TENANT", wide: true, of: func(t contract.JoinToken) string { return t.Tenant }},
	},
}

// bootLease tells whether a site's agent serves network boot.
func bootLease(g contract.Agent) string {
	switch {
	case g.Boot == nil:
		return ""
	case g.Boot.Until == nil:
		return "standby"
	}
	return "until " + clock(*g.Boot.Until)
}

func bootServer(g contract.Agent) string {
	if g.Boot == nil {
		return ""
	}
	return g.Boot.URL
}

func connectedShade(v string) string {
	if v == "yes" {
		return green
	}
	return yellow
}

func optionalClock(t *time.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}

func newAgent(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent", Short: "See agents, and let them join", GroupID: groupReads,
		Long: withExits(`An agent runs at a site, in the ramdisk of a machine, or in its installed OS. It joins with a join token.`, remoteExits),
	}
	cmd.AddCommand(newListAgents(a), newGetAgent(a), newRevokeAgent(a), newJoinToken(a), newListJoinTokens(a), newRevokeJoinToken(a))
	return cmd
}

func newListAgents(a *app) *cobra.Command {
	var site, node, role string
	cmd := &cobra.Command{
		Use: "list", Short: "List agents with their last sign of life", Args: cobra.NoArgs,
		Long:    withExits("Lists agents, when each was last heard of, and what it is doing.", remoteExits),
		Example: "  metalctl agent list --role site",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, agentKind, func(c *client.Client) ([]contract.Agent, error) {
				return client.Collect(c.Agents(cmd.Context(), site, node, role), 0)
			})
		},
	}
	cmd.Flags().StringVar(&site, "site", "", "of this site")
	cmd.Flags().StringVar(&node, "node", "", "of this machine")
	cmd.Flags().StringVar(&role, "role", "", "site, ramdisk or node")
	_ = cmd.RegisterFlagCompletionFunc("role", words("site", "ramdisk", "node")) // the flag was made above
	return cmd
}

func newGetAgent(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get AGENT", Short: "Show one agent", Args: cobra.ExactArgs(1),
		Long:    withExits("Shows one agent: who it is, its last contact, and what it is doing.", remoteExits),
		Example: "  metalctl agent get agt_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, agentKind, func(c *client.Client) (contract.Agent, error) { return c.GetAgent(cmd.Context(), args[0]) })
		},
	}
}

func newRevokeAgent(a *app) *cobra.Command {
	var f writeFlags
	var in contract.Reason
	cmd := &cobra.Command{
		Use: "revoke AGENT", Short: "Take an agent's certificates away", Args: cobra.ExactArgs(1),
		Long: withExits(`Takes an agent's certificates away: it is turned off at once and can join again with a fresh token only. What it signed
before is still checked with the certificates that it had.`, remoteExits),
		Example: "  metalctl agent revoke agt_01k… --reason 'stolen laptop'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, agentKind, func(c *client.Client) (contract.Agent, error) {
				return c.RevokeAgent(cmd.Context(), args[0], in, f.options()...)
			})
		},
	}
	f.create(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, in up to 512 characters")
	return cmd
}

const joiningLong = `Makes a token with which an agent joins: a site's agent (--site), a machine that runs an OS already (--pool), or, by hand, the
ramdisk or the installed OS of a machine (--node with --role).

The token is shown once. With --out it goes to a file of mode 0600 instead of standard output. An agent also needs the URL of
the gateway and the SHA-256 of the control plane's authority, by which it knows whom it gives the token to: both are told on
standard error.`

func newJoinToken(a *app) *cobra.Command {
	var f writeFlags
	var in contract.NewJoinToken
	var expect contract.JoinExpect
	var life time.Duration
	var out string
	cmd := &cobra.Command{
		Use: "token", Short: "Make a token with which an agent joins", Args: cobra.NoArgs, Long: withExits(joiningLong, remoteExits),
		Example: "  metalctl agent token --site site_01k… --out site-token\n  metalctl agent token --pool pool_01k… --max-uses 40 --ttl 24h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Role = joinRole(in)
			if in.Role == "" {
				return usage("one of --site, --pool, or --node with --role, is needed")
			}
			if life < time.Second || in.MaxUses < 1 {
				return usage("--ttl is at least a second, and --max-uses at least 1")
			}
			in.TTL = int(life / time.Second)
			if len(expect.MACs) > 0 || expect.Serial != "" || expect.ProductUUID != "" {
				in.Expect = &expect
			}
			return a.makeJoinToken(cmd.Context(), in, out, f.options())
		},
	}
	f.create(cmd)
	flags := cmd.Flags()
	flags.StringVar(&in.Site, "site", "", "let an agent of this site join")
	flags.StringVar(&in.Pool, "pool", "", "let machines join this pool as new nodes")
	flags.StringVar(&in.Node, "node", "", "let an agent of this machine join")
	flags.StringVar(&in.Role, "role", "", "with --node: discovery (its ramdisk) or provisioned (its installed OS)")
	flags.DurationVar(&life, "ttl", time.Hour, "how long it is good")
	flags.IntVar(&in.MaxUses, "max-uses", 1, "how many agents may join with it")
	flags.StringSliceVar(&expect.MACs, "expect-mac", nil, "only a machine with this MAC; repeat for more")
	flags.StringVar(&expect.Serial, "expect-serial", "", "only the machine with this serial number")
	flags.StringVar(&expect.ProductUUID, "expect-uuid", "", "only the machine with this SMBIOS UUID")
	flags.StringVar(&out, "out", "", "file to write the token to, mode 0600")
	return cmd
}

// joinRole is the role that the flags imply.
func joinRole(in contract.NewJoinToken) string {
	switch {
	case in.Role != "":
		return in.Role
	case in.Site != "":
		return "site"
	case in.Pool != "":
		return "node"
	}
	return ""
}

// makeJoinToken prints the token alone on a line of standard output, or keeps it in a file.
func (a *app) makeJoinToken(ctx context.Context, in contract.NewJoinToken, out string, o []client.Option) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	var made contract.JoinToken
	mint := func() (string, error) {
		made, err = c.CreateJoinToken(ctx, in, o...)
		return made.Token, err
	}
	if out == "" {
		_, err = mint()
	} else {
		err = keepSecret(out, mint)
		made.Token = ""
	}
	if err != nil {
		return err
	}
	if a.flag.output == "json" || a.flag.output == "yaml" {
		return a.document(made)
	}
	a.say("join token %s, role %s, good until %s", made.ID, made.Role, clock(made.ExpiresAt))
	if made.Gateway != "" {
		a.say("for bcd: --gateway %s --ca-sha256 %s", made.Gateway, made.CASHA256)
	}
	if made.Token != "" {
		_, err = a.out.Write([]byte(made.Token + "\n"))
	}
	return err
}

// keepSecret puts a line that is shown once into a file of mode 0600. The file is begun first: where it can't be written, there
// must be no secret that works and that nobody has.
func keepSecret(path string, mint func() (string, error)) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	secret, err := mint()
	if err != nil {
		return err
	}
	_, err = file.WriteString(secret + "\n")
	return err
}

func newListJoinTokens(a *app) *cobra.Command {
	var site, node string
	cmd := &cobra.Command{
		Use: "tokens", Short: "List join tokens, newest first", Args: cobra.NoArgs,
		Long:    withExits("Lists join tokens, newest first: what each is for and how often it was used.", remoteExits),
		Example: "  metalctl agent tokens --site site_01k…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, joinTokenKind, func(c *client.Client) ([]contract.JoinToken, error) {
				return client.Collect(c.JoinTokens(cmd.Context(), "", site, node), 0)
			})
		},
	}
	cmd.Flags().StringVar(&site, "site", "", "of this site")
	cmd.Flags().StringVar(&node, "node", "", "of this machine")
	return cmd
}

func newRevokeJoinToken(a *app) *cobra.Command {
	var f writeFlags
	var in contract.Reason
	cmd := &cobra.Command{
		Use: "revoke-token JOIN-TOKEN", Short: "End a join token", Args: cobra.ExactArgs(1),
		Long:    withExits("Ends a join token: nobody joins with it any more. Agents that have joined stay.", remoteExits),
		Example: "  metalctl agent revoke-token jtk_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, joinTokenKind, func(c *client.Client) (contract.JoinToken, error) {
				return c.RevokeJoinToken(cmd.Context(), args[0], in, f.options()...)
			})
		},
	}
	f.change(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, in up to 512 characters")
	return cmd
}
