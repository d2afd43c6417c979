// Command metald is the control plane: the HTTP API, the write side and the read models over one event log.
package main

import (
	"context"
	"errors"
	"fmt"
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
)

const exitStatus = `
EXIT STATUS
  0  it did what it was asked, or was stopped by a signal
  1  it failed while running; the reason is on standard error
  2  the configuration or the arguments are wrong; every issue is listed`

func main() {
	ctx, stop := untilSignal()
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		complain(os.Stderr, err)
		os.Exit(exitCode(err))
	}
}

// untilSignal ends the context at the first SIGINT or SIGTERM. A second one ends the program at once.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect
	return ctx, stop
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fault.New(fault.InvalidConfig, "%s", err).WithRemedy("see --help")
	})
	root.AddCommand(devCommand(), serveCommand(), migrateCommand(), projectionsCommand(), secretsCommand(), replayCommand())
	return root
}

// complain tells a person what went wrong and what to do next.
func complain(w *os.File, err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		fmt.Fprintln(w, "metald:", err)
		return
	}
	fmt.Fprintf(w, "metald: %s (%s)\n", f.Message, f.Code)
	for _, i := range f.Issues {
		fmt.Fprintf(w, "  %s: %s\n", i.Path, i.Message)
	}
	if cause := errors.Unwrap(f); cause != nil {
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
