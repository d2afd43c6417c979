package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/fault"
)

// control is where a running site is reached.
type control struct{ url string }

func ctlCommand() *cobra.Command {
	var c control
	cmd := &cobra.Command{
		Use:   "ctl",
		Short: "Look at a running site, and break it",
		Long:  "ctl speaks to a metalsim that runs on this machine.\n" + exitStatus,
		Example: `  metalsim ctl list
  metalsim ctl show machine-3
  metalsim ctl disk machine-3 0
  metalsim ctl reset machine-3 ForceOff
  metalsim ctl fault '{"machine": "machine-3", "deadDisk": {"disk": 0, "mode": "writes-fail"}}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&c.url, "control", "http://127.0.0.1:6480", "where the site is reached")
	cmd.AddCommand(c.list(), c.show(), c.disk(), c.reset(), c.fault())
	return cmd
}

func (c *control) list() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the machines with what runs on them", Long: "list shows power and what runs.\n" + exitStatus,
		Example: "  metalsim ctl list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []sim.Listed
			if err := c.ask(cmd.Context(), http.MethodGet, "/machines", nil, &list); err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "MACHINE\tPERSONALITY\tPOWER\tRUNS\tBOOT\tBMC")
			for _, m := range list {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Personality, m.View.Power, runs(m.View),
					m.View.Boot.Target, m.BMC.Address)
			}
			return w.Flush()
		},
	}
}

func runs(v sim.View) string {
	switch {
	case v.Running == sim.Nothing:
		return "-"
	case v.OS != "":
		return string(v.Running) + " " + v.OS
	default:
		return string(v.Running)
	}
}

func (c *control) show() *cobra.Command {
	return &cobra.Command{
		Use: "show MACHINE", Short: "Show one machine with its disks and console",
		Long:    "show tells everything about one machine.\n" + exitStatus,
		Example: "  metalsim ctl show machine-3", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d sim.Detail
			if err := c.ask(cmd.Context(), http.MethodGet, "/machines/"+url.PathEscape(args[0]), nil, &d); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			_, _ = fmt.Fprintf(out, "%s  %s  power %s  runs %s\n%s  serial %s  uuid %s\n\n", d.Name, d.Personality, d.View.Power,
				runs(d.View), d.BMC.Address, d.Serial, d.UUID)
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "DISK\tPATH\tMODEL\tSERIAL\tBYTES\tNOT ZERO\tOS")
			for i, disk := range d.Disks {
				_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%s\n", i, disk.Path, disk.Model, disk.Serial, disk.Bytes,
					disk.Allocated, disk.OS)
			}
			_, _ = fmt.Fprintln(w)
			for _, e := range d.Console {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", e.At.Format(time.TimeOnly), e.Kind, e.Text)
			}
			return w.Flush()
		},
	}
}

func (c *control) disk() *cobra.Command {
	var offset, length int64
	cmd := &cobra.Command{
		Use: "disk MACHINE NUMBER", Short: "Show bytes of a disk",
		Long:    "disk shows what a disk holds, in hexadecimal, as if it had been taken out.\n" + exitStatus,
		Example: "  metalsim ctl disk machine-3 0 --length 64", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := fmt.Sprintf("/machines/%s/disks/%s?offset=%d&length=%d", url.PathEscape(args[0]), url.PathEscape(args[1]),
				offset, length)
			var b []byte
			if err := c.ask(cmd.Context(), http.MethodGet, path, nil, &b); err != nil {
				return err
			}
			_, err := io.WriteString(cmd.OutOrStdout(), hex.Dump(b))
			return err
		},
	}
	cmd.Flags().Int64Var(&offset, "offset", 0, "where to begin")
	cmd.Flags().Int64Var(&length, "length", 512, "how many bytes")
	return cmd
}

func (c *control) reset() *cobra.Command {
	return &cobra.Command{
		Use: "reset MACHINE TYPE", Short: "Press a machine's buttons",
		Long: "reset does what a Redfish reset type says: On, ForceOff, GracefulShutdown, ForceRestart, GracefulRestart,\n" +
			"PowerCycle, PushPowerButton.\n" + exitStatus,
		Example: "  metalsim ctl reset machine-3 ForceOff", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var v sim.View
			body := map[string]string{"resetType": args[1]}
			if err := c.ask(cmd.Context(), http.MethodPost, "/machines/"+url.PathEscape(args[0])+"/reset", body, &v); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", args[0], v.Power)
			return err
		},
	}
}

func (c *control) fault() *cobra.Command {
	return &cobra.Command{
		Use: "fault JSON", Short: "Make something go wrong",
		Long: `fault injects a fault: machine (a name or a glob; without it every machine), and one or more of

  rule             {path, method, nth, times, every} with {delay, drop: before|after, status, body, lie, truncate}: the controller
  deadDisk         {disk, mode}: writes-fail, reads-fail, reads-garbage, discard-lies, erase-lies, erase-fails
  hungBoots        so many of the next boots hang after the self-test
  wrongNicOrder    the ports have each other's addresses
  agentDiesAt      {kind, nth, after}: at an order such as disk.wipe, before the work or after it
  hangsAt          a kind of order, such as burnin.cpu, that comes to no end until it is cancelled
  noRejoin         the installed OS starts without its agent
  ignoresShutdown  the power button does nothing
  badMemory        trying the memory finds errors
  heal             every earlier fault ends

A file of faults (--faults) is a YAML list of the same.` + "\n" + exitStatus,
		Example: `  metalsim ctl fault '{"machine": "machine-3", "hungBoots": 1}'
  metalsim ctl fault '{"rule": {"path": "*/Actions/ComputerSystem.Reset", "method": "POST", "nth": 2, "times": 1, "status": 503}}'
  metalsim ctl fault '{"machine": "machine-*", "heal": true}'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := sim.DecodeFault(strings.NewReader(args[0])); err != nil {
				return err
			}
			return c.ask(cmd.Context(), http.MethodPost, "/faults", json.RawMessage(args[0]), nil)
		},
	}
}

// ask sends one request. The answer goes into out: bytes as they are, anything else as JSON.
func (c *control) ask(ctx context.Context, method, path string, body, out any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/")+path, sent)
	if err != nil {
		return fault.Invalid(fault.Issue{Path: "--control", Message: err.Error()})
	}
	if sent != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "no site answers at %s", c.url).WithRemedy("start 'metalsim', or name its --control")
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the site's answer broke off")
	}
	if res.StatusCode != http.StatusOK {
		return problem(b, res.StatusCode)
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = b
		return nil
	default:
		return json.Unmarshal(b, out)
	}
}

// problem reads the error that the site tells.
func problem(b []byte, status int) error {
	var p struct {
		Code   fault.Code    `json:"code"`
		Title  string        `json:"title"`
		Issues []fault.Issue `json:"issues"`
		Remedy string        `json:"remedy"`
	}
	if json.Unmarshal(b, &p) != nil || p.Code == "" {
		return fault.New(fault.Internal, "the site answers %s", strconv.Itoa(status))
	}
	return &fault.Error{Code: p.Code, Message: p.Title, Issues: p.Issues, Remedy: p.Remedy}
}
