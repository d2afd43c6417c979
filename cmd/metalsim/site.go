package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/fault"
)

// options are the flags.
type options struct {
	config        sim.Config
	personalities []string
	faults        string
	images        string
	imagesListen  string
	control       string
	inventory     string
	verbose       bool
}

func siteCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "metalsim",
		Short: "A simulated site of machines",
		Long: `metalsim runs a number of simulated machines in one process. Each has a management controller that speaks Redfish over
TLS on a port of its own, in the ways of one of several makers, and disks that hold bytes. A machine that boots from the
network runs the real ramdisk agent, told by the boot server under --boot-url; one that boots from a disk runs the OS that
was written there, and its agent. Everything follows from the seed: the same seed gives the same machines, credentials and
certificates.

It prints a table of the machines and runs until Ctrl-C. With --json it also writes what it takes to enroll them, with
passwords, to a file of mode 0600. 'metalsim ctl' looks at a running site and breaks it.

Nothing outside of this process is changed or destroyed.` + "\n" + exitStatus,
		Example: `  metalsim --machines 5
  metalsim --machines 200 --seed 7 --boot-url http://127.0.0.1:8081 --json machines.json
  metalsim --personalities dell,hpe --post 20s --boot 10s --faults faults.yaml
  metalsim --images ./images --disk-dir ./disks --listen 127.0.0.1:7001`,
		Args:    cobra.NoArgs,
		Version: program.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runSite(cmd, o) },
	}
	f, c := cmd.Flags(), &o.config
	f.IntVar(&c.Count, "machines", 3, "how many machines")
	f.Uint64Var(&c.Seed, "seed", 1, "what everything follows from")
	f.StringVar(&c.Listen, "listen", "127.0.0.1:0",
		"host:port of the first controller; the next ones count up; port 0 takes free ones")
	f.StringVar(&c.BootURL, "boot-url", "", "the boot server that the machines' network boot asks, such as http://127.0.0.1:8081; "+
		"several, with commas between them, where the site has several agents")
	f.StringSliceVar(&o.personalities, "personalities", nil,
		"how the controllers behave, in turn: standard, dell, hpe, supermicro, ami (default all)")
	f.DurationVar(&c.Delays.POST, "post", 0, "how long the self-test takes")
	f.DurationVar(&c.Delays.Boot, "boot", 0, "how long an OS takes until its agent runs")
	f.DurationVar(&c.Delays.Shutdown, "shutdown", 0, "how long a shutdown in order takes")
	f.Int64Var(&c.DiskBytes, "disk-bytes", 64<<20, "size of each machine's first disk; the second is twice as large")
	f.StringVar(&c.DiskDir, "disk-dir", "", "directory to keep the disks in, from one run to the next (default in memory)")
	f.BoolVar(&c.FetchKernel, "fetch-kernel", false, "machines fetch kernel and ramdisk, and do not boot without")
	f.StringVar(&o.faults, "faults", "", "YAML file with a list of faults to begin with")
	f.StringVar(&o.images, "images", "", "directory of OS images to serve over HTTP; two are made there where it has none")
	f.StringVar(&o.imagesListen, "images-listen", "127.0.0.1:0", "where to serve the images")
	f.StringVar(&o.control, "control", "127.0.0.1:6480", "where 'metalsim ctl' reaches this; a loopback address; empty: nowhere")
	f.StringVar(&o.inventory, "json", "", "file to write the machines to, with what it takes to enroll them")
	f.BoolVar(&o.verbose, "verbose", false, "log what the agents do, on standard error")
	return cmd
}

func runSite(cmd *cobra.Command, o options) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	for _, p := range o.personalities {
		o.config.Personalities = append(o.config.Personalities, bmcsim.Name(strings.TrimSpace(p)))
	}
	if o.config.Count < 1 {
		return fault.Invalid(fault.Issue{Path: "--machines", Message: "is not above zero"})
	}
	o.config.Version = "metalsim " + program.Version()
	if o.verbose {
		o.config.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	faults, err := readFaults(o.faults)
	if err != nil {
		return err
	}
	if o.config.DiskDir != "" {
		if err := os.MkdirAll(o.config.DiskDir, 0o700); err != nil {
			return fault.Wrap(err, fault.InvalidConfig, "can't make %s: %v", o.config.DiskDir, err).WithRemedy("name another directory")
		}
	}
	site, err := sim.New(o.config)
	if err != nil {
		return err
	}
	defer func() { _ = site.Close() }()
	for i, f := range faults {
		if err := site.Inject(f); err != nil {
			return inFile(o.faults, i, err)
		}
	}
	if err := site.Start(ctx); err != nil {
		return err
	}
	if err := printSite(out, site); err != nil {
		return err
	}
	if err := writeInventory(o.inventory, site); err != nil {
		return err
	}
	services, err := o.services(ctx, out, site)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "\nCtrl-C ends it.")
	<-ctx.Done()
	for _, s := range services {
		_ = s.Close() // connections end with the site
	}
	return nil
}

// services starts what is served beside the controllers.
func (o options) services(ctx context.Context, out io.Writer, site *sim.Site) (servers []*http.Server, err error) {
	defer func() {
		if err != nil {
			for _, s := range servers {
				_ = s.Close()
			}
		}
	}()
	if o.images != "" {
		images, err := prepareImages(o.images)
		if err != nil {
			return servers, err
		}
		server, at, err := serve(ctx, o.imagesListen, http.FileServerFS(os.DirFS(o.images)))
		if err != nil {
			return servers, err
		}
		servers = append(servers, server)
		printImages(out, "http://"+at, images)
	}
	if o.control != "" {
		host, _, err := net.SplitHostPort(o.control)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return servers, fault.Invalid(fault.Issue{
				Path: "--control", Message: "is not a loopback address with a port, such as 127.0.0.1:6480",
			})
		}
		server, at, err := serve(ctx, o.control, site.Control())
		if err != nil {
			return servers, err
		}
		servers = append(servers, server)
		_, _ = fmt.Fprintf(out, "\nControl: http://%s (metalsim ctl --help)\n", at)
	}
	return servers, nil
}

func serve(ctx context.Context, address string, handler http.Handler) (*http.Server, string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, "", fault.Wrap(err, fault.InvalidConfig, "can't listen on %s: %v", address, err).
			WithRemedy("choose another address")
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			slog.Error("a service has ended", "address", address, "error", err)
		}
	}()
	return server, listener.Addr().String(), nil
}

func printSite(out io.Writer, site *sim.Site) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "MACHINE\tPERSONALITY\tBMC\tUSER\tPASSWORD\tMACS\tSERIAL")
	for _, m := range site.List() {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Personality, m.BMC.Address, m.BMC.Username, m.BMC.Password,
			strings.Join(m.MACs, ","), m.Serial)
	}
	return w.Flush()
}

// writeInventory writes the file that enrolling scripts read. It holds passwords, of the simulation only.
func writeInventory(file string, site *sim.Site) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(site.List(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "can't write %s: %v", file, err).WithRemedy("name a file that can be written")
	}
	return nil
}
