// Command bcd is the agent: it carries out what the control plane orders, at a site or on a machine. It dials out only.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/domain/fault"
)

// The exit codes, told in every command's help.
const (
	exitFailed    = 1
	exitBadConfig = 2
	exitRefused   = 3
)

const exitStatus = `
EXIT STATUS
  0  it was stopped by a signal, or did what it was asked
  1  it failed while running; the reason is on standard error
  2  the configuration or the arguments are wrong; every issue is listed
  3  the control plane does not let it in: it needs a fresh join token`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	args := os.Args[1:]
	if startedAsInit() {
		args = []string{"ramdisk"} // the kernel's words are not ours
	}
	code := execute(ctx, os.Stdout, os.Stderr, args...)
	stop()
	os.Exit(code)
}

// execute runs one command line and gives the exit code.
func execute(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	root := command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	running := false
	root.PersistentPreRun = func(*cobra.Command, []string) { running = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var known *fault.Error
	if !running && !errors.As(err, &known) { // cobra's own words about the arguments
		err = wrongArguments(cmd, err)
	}
	complain(stderr, err)
	switch fault.CodeOf(err) {
	case fault.InvalidConfig, fault.InvalidInput:
		return exitBadConfig
	case fault.Unauthenticated, fault.Forbidden:
		return exitRefused
	}
	return exitFailed
}

func wrongArguments(cmd *cobra.Command, err error) error {
	return fault.New(fault.InvalidInput, "%s", err).WithRemedy("see '" + cmd.CommandPath() + " --help'")
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "bcd",
		Short: "The agent of the bare-metal control plane",
		Long: `bcd carries out what the control plane orders. It dials out only: where it runs, nothing needs to be reachable from outside
but, at a site, what machines boot from.

At a site, 'bcd site' talks to the machines' BMCs and serves network boot. On a machine that was booted to be worked on, 'bcd
ramdisk' is the first process; in its installed OS, 'bcd node' tells what the machine is.` + "\n" + exitStatus,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		Args:          noWord,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(wrongArguments)
	root.AddCommand(siteCommand(), nodeCommand(), ramdiskCommand(), imageCommand(), versionCommand())
	return root
}

func noWord(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("there is no command %q of %s", args[0], cmd.CommandPath())
	}
	return nil
}

// complain tells a person what went wrong and what to do next.
func complain(w io.Writer, err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		fmt.Fprintln(w, "bcd:", err)
		return
	}
	fmt.Fprintf(w, "bcd: %s (%s)\n", f.Message, f.Code)
	for _, i := range f.Issues {
		fmt.Fprintf(w, "  %s: %s\n", i.Path, i.Message)
	}
	if f.Remedy != "" {
		fmt.Fprintln(w, "  what to do:", f.Remedy)
	}
}
