package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/adapters/netboot"
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
to its next boot device.
` + exitStatus,
		Example: `  bcd site --gateway https://metal.example:8444 --ca-sha256 3f1c…9a --token-file /etc/bcd/token \
    --boot-listen 10.0.0.2:8081 --boot-url http://10.0.0.2:8081 --boot-files /srv/boot
  BCD_GATEWAY=https://metal.example:8444 BCD_CA_SHA256=3f1c…9a bcd site --token-file "$CREDENTIALS_DIRECTORY/token"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w)
			token := c.token(w)
			if err := w.err(); err != nil {
				return err
			}
			return site(cmd.Context(), c, token)
		},
	}
	c.bind(cmd.Flags())
	return describeOptions(cmd)
}

// site runs until ctx ends, or the agent or its boot server can't go on.
func site(ctx context.Context, c siteConfig, token string) error {
	logger := c.logger()
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
	group, ctx := errgroup.WithContext(ctx)
	if c.bootListen != "" {
		deps.Entries = netboot.NewEntries(time.Now)
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.bootListen)
		if err != nil {
			return fault.Wrap(err, fault.InvalidConfig, "--boot-listen: %v", err)
		}
		group.Go(func() error { return serveBoot(ctx, c, deps.Entries, listener, logger) })
	}
	group.Go(func() error {
		err := agent.Run(ctx, agent.Options{
			Gateway: c.gateway, CA: c.ca, Token: token, Role: agentcommand.RoleSite, State: agent.FileState(c.stateDir),
			BootID: rand.Text(), Version: version(), Name: c.name, Kinds: agent.SiteHandlers(deps), Room: c.room, Logger: logger,
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

// serveBoot answers machines that boot, until ctx ends.
func serveBoot(ctx context.Context, c siteConfig, entries *netboot.Entries, listener net.Listener, logger *slog.Logger) error {
	boot := &netboot.Server{Entries: entries, Gateway: c.gateway, CA: c.ca, URL: c.bootURL, Logger: logger}
	if c.bootFiles != "" {
		boot.Files = os.DirFS(c.bootFiles)
	}
	server := &http.Server{
		Handler: boot.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() }) // machines ask again
	defer stopped()
	logger.Info("serving network boot", "address", listener.Addr().String(), "url", c.bootURL)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fault.Wrap(err, fault.Unavailable, "the boot server ended: %v", err)
	}
	return nil
}

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
