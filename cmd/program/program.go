// Package program is what our programs have alike: how a command line is run and what is said when it fails, options from flags
// and the environment with everything that is wrong told at once, the log, and the version.
package program

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

// The exit codes that every program has.
const (
	ExitFailed    = 1 // while it ran
	ExitBadConfig = 2 // the configuration or the arguments are wrong
)

// UntilSignal ends the context at the first SIGINT or SIGTERM. A second one ends the program at once.
func UntilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect
	return ctx, stop
}

// Execute runs one command line. What goes wrong it tells on standard error, and gives back.
func Execute(ctx context.Context, root *cobra.Command, stdout, stderr io.Writer, args ...string) error {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(wrongArguments)
	running := false
	root.PersistentPreRun = func(*cobra.Command, []string) { running = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return nil
	}
	var known *fault.Error
	if !running && !errors.As(err, &known) { // cobra's own words about the arguments
		err = wrongArguments(cmd, err)
	}
	complain(stderr, root.Name(), err)
	return err
}

// ExitCode is what a program ends with.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case fault.CodeOf(err) == fault.InvalidConfig || fault.CodeOf(err) == fault.InvalidInput:
		return ExitBadConfig
	}
	return ExitFailed
}

// Group makes cmd one that only holds others: alone it shows its help, and a word that is none of them is refused.
func Group(cmd *cobra.Command, members ...*cobra.Command) *cobra.Command {
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

func wrongArguments(cmd *cobra.Command, err error) error {
	return fault.New(fault.InvalidInput, "%s", err).WithRemedy("see '" + cmd.CommandPath() + " --help'")
}

// complain tells a person what went wrong and what to do next.
func complain(w io.Writer, name string, err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		fmt.Fprintf(w, "%s: %v\n", name, err)
		return
	}
	fmt.Fprintf(w, "%s: %s (%s)\n", name, f.Message, f.Code)
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
