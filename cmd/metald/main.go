// Command metald is the control plane: the HTTP API, the gateway of the agents, the process managers and the read models over
// one event log. Package plane has the wiring.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/program"
)

const exitStatus = `
EXIT STATUS
  0  it did what it was asked, or was stopped by a signal
  1  it failed while running; the reason is on standard error
  2  the configuration or the arguments are wrong; every issue is listed`

func main() {
	ctx, stop := program.UntilSignal()
	code := execute(ctx, os.Stdout, os.Stderr, os.Args[1:]...)
	stop()
	os.Exit(code)
}

// execute runs one command line and gives the exit code.
func execute(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	return program.ExitCode(program.Execute(ctx, command(), stdout, stderr, args...))
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
		Version: program.Version(),
	}
	return program.Group(root, devCommand(), serveCommand(), migrateCommand(), projectionsCommand(), wakeupsCommand(), secretsCommand(),
		replayCommand(), program.VersionCommand("metald", exitStatus))
}
