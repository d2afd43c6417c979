package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// drivers are the BMC drivers by name.
var drivers = map[string]func(*slog.Logger) bmc.Driver{
	"redfish": func(logger *slog.Logger) bmc.Driver { return redfish.New(redfish.Options{Logger: logger}) },
}

func siteCommand() *cobra.Command {
	var c siteConfig
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Run the agent of a site: it talks to BMCs and serves network boot",
		Long: `site runs the agent of one site, near the machines' BMCs. It joins with a join token of the role site, once; then it has a
certificate in --state-dir, which it renews by itself.

With --boot-listen it serves iPXE the script of each machine, at /boot/<mac>. A machine that nobody ordered to boot goes on
to its next boot device. Where --boot-files has a ramdisk.iso (bcd image build-ramdisk --iso), machines whose profile says so
boot from a virtual drive of their BMC instead, and need no boot from the network: the BMC fetches the image here.

Of several agents of a site one serves network boot: the one with the boot lease, which it keeps while it reaches the control
plane. Another takes over when it dies. Give each one its own --boot-url, and its own --dhcp-range where it gives out addresses.
An agent without --boot-listen never has the lease. With --boot-alone an agent answers machines without asking: where a site has
one only, and its DHCP server must go on while the control plane is away.

The rest of network boot is switched on part by part:
  --dhcp proxy    tells machines what to boot (ports 67 and 4011), beside a DHCP server that gives out the addresses
  --dhcp server   gives out the addresses of --dhcp-range too; leases are kept in --state-dir
  --ipxe-dir      offers iPXE to UEFI HTTP boot; with --tftp also to PXE firmware: BIOS, UEFI x86-64 and arm64
  --cache-dir     keeps images near the machines, by digest, at /images/sha256:<digest>?from=<url>; machines that write an
                  image ask there first, and its source where the cache does not have it
DHCP and TFTP use ports below 1024: they need root, or the capabilities NET_BIND_SERVICE and NET_RAW. A machine without a
boot entry gets no answer from DHCP, unless --dhcp-unknown says so or it has a lease.
` + exitStatus,
		Example: `  bcd site --gateway https://metal.example:8444 --ca-sha256 3f1c…9a --token-file /etc/bcd/token \
    --boot-listen 10.0.0.2:8081 --boot-url http://10.0.0.2:8081 --boot-files /srv/boot
  BCD_GATEWAY=https://metal.example:8444 BCD_CA_SHA256=3f1c…9a bcd site --token-file "$CREDENTIALS_DIRECTORY/token"

  Beside the DHCP server of the network, for firmware with and without iPXE (add the first three options above):
  bcd site … --boot-listen 10.0.0.2:8081 --boot-url http://10.0.0.2:8081 --boot-files /srv/boot \
    --dhcp proxy --dhcp-interface eth1 --tftp 10.0.0.2:69 --ipxe-dir /usr/lib/ipxe

  On a network of its own, with images kept near the machines:
  bcd site … --boot-listen 10.0.0.2:8081 --boot-url http://10.0.0.2:8081 --boot-files /srv/boot \
    --dhcp server --dhcp-interface eth1 --dhcp-range 10.0.0.100-10.0.0.200 --dhcp-router 10.0.0.1 --dhcp-dns 10.0.0.1 \
    --tftp 10.0.0.2:69 --ipxe-dir /usr/lib/ipxe \
    --cache-dir /var/cache/bcd --cache-bytes 100G --cache-from https://images.example/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := &program.Issues{}
			environment.Fill(cmd, os.LookupEnv, w)
			c.check(w)
			token := c.token(w)
			if err := w.Err(); err != nil {
				return err
			}
			return site(cmd.Context(), c, token)
		},
	}
	c.bind(cmd.Flags())
	return environment.Describe(cmd)
}

// site runs until ctx ends, or the agent or its boot server can't go on.
func site(ctx context.Context, c siteConfig, token string) error {
	logger := c.log.Logger()
	allow, err := c.allowed()
	if err != nil {
		return err
	}
	offered := map[string]bmc.Driver{}
	for _, name := range c.drivers {
		offered[name] = drivers[name](logger)
	}
	defer closeDrivers(ctx, offered, logger)

	gateway, err := url.Parse(c.gateway)
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the gateway's URL is not valid")
	}
	deps := agent.SiteDeps{Drivers: offered, Proxy: agent.ProxyLimits{Allow: allow, Hosts: []string{gateway.Hostname()}}}
	var network *agent.BootServer
	group, ctx := errgroup.WithContext(ctx)
	if c.boot.listen != "" {
		served, err := openBoot(ctx, c, logger)
		if err != nil {
			return err
		}
		deps.Entries, deps.Medium = served.entries, served.server.MediumURL
		network = &agent.BootServer{URL: c.boot.url, Entries: served.entries, Lease: served.lease}
		group.Go(func() error { return served.serve(ctx) })
	}
	group.Go(func() error {
		err := agent.Run(ctx, agent.Options{
			Gateway: c.gateway, CA: c.ca, Token: token, Role: agentcommand.RoleSite, State: agent.FileState(c.stateDir),
			BootID: rand.Text(), Version: program.Version(), Name: c.name, Kinds: agent.SiteHandlers(deps), Room: c.room, Logger: logger,
			Boot: network,
		})
		if err == nil {
			err = errStopped // the boot server ends too
		}
		return err
	})
	if err := group.Wait(); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

var errStopped = errors.New("stopped")

// closeDrivers ends the sessions on BMCs, of which they have few.
func closeDrivers(ctx context.Context, offered map[string]bmc.Driver, logger *slog.Logger) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for name, driver := range offered {
		if err := driver.Close(last); err != nil {
			logger.Warn("sessions are left open", "driver", name, "error", err)
		}
	}
}
