// Command metald is the control plane: the HTTP API, the gateway of the agents, the process managers and the read models over
// one event log. Package plane has the wiring.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/domain/fault"
)

// The exit codes, told in every command's help.
const (
	exitFailed    = 1
	exitBadConfig = 2
)

const exitStatus = `
EXIT STATUS
  0  it did what it was asked, or was stopped by a signal
  1  it failed while running; the reason is on standard error
  2  the configuration or the arguments are wrong; every issue is listed`

func main() {
	ctx, stop := untilSignal()
	code := execute(ctx, os.Stdout, os.Stderr, os.Args[1:]...)
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
	return exitCode(err)
}

func wrongArguments(cmd *cobra.Command, err error) error {
	return fault.New(fault.InvalidInput, "%s", err).WithRemedy("see '" + cmd.CommandPath() + " --help'")
}

// untilSignal ends the context at the first SIGINT or SIGTERM. A second one ends the program at once.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect
	return ctx, stop
}

// unlessStopped takes the end of a control plane that a signal stopped, even while it started, for no failure.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "metald",
		Short: "The bare-metal control plane",
		Long: `metald takes servers you own from a powered-off box with a BMC to a running node and back, wiped.

Try it on one machine with 'metald dev'; run it for real with 'metald serve'.` + "\n" + exitStatus,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetFlagErrorFunc(wrongArguments)
	return group(root, devCommand(), serveCommand(), migrateCommand(), projectionsCommand(), wakeupsCommand(), secretsCommand(),
		replayCommand(), versionCommand())
}

// group makes cmd one that only holds others: alone it shows its help, and a word that is none of them is refused.
func group(cmd *cobra.Command, members ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(members...)
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("there is no command %q of %s", args[0], cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// complain tells a person what went wrong and what to do next.
func complain(w io.Writer, err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		fmt.Fprintln(w, "metald:", err)
		return
	}
	fmt.Fprintf(w, "metald: %s (%s)\n", f.Message, f.Code)
	for _, i := range f.Issues {
		fmt.Fprintf(w, "  %s: %s\n", i.Path, i.Message)
	}
	if cause := errors.Unwrap(f); cause != nil && !strings.Contains(f.Message, cause.Error()) {
		fmt.Fprintln(w, "  cause:", cause)
	}
	if f.Remedy != "" {
		fmt.Fprintln(w, "  what to do:", f.Remedy)
	}
}

func exitCode(err error) int {
	switch fault.CodeOf(err) {
	case fault.InvalidConfig, fault.InvalidInput:
		return exitBadConfig
	}
	return exitFailed
}
