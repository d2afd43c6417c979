// Command bcd is the agent: it carries out what the control plane orders, at a site or on a machine. It dials out only.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/fault"
)

// exitRefused is the exit code besides those of every program.
const exitRefused = 3

const exitStatus = `
EXIT STATUS
  0  it was stopped by a signal, or did what it was asked
  1  it failed while running; the reason is on standard error
  2  the configuration or the arguments are wrong; every issue is listed
  3  the control plane does not let it in: it needs a fresh join token`

func main() {
	ctx, stop := program.UntilSignal()
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
	err := program.Execute(ctx, command(), stdout, stderr, args...)
	switch fault.CodeOf(err) {
	case fault.Unauthenticated, fault.Forbidden:
		return exitRefused
	}
	return program.ExitCode(err)
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "bcd",
		Short: "The agent of the bare-metal control plane",
		Long: `bcd carries out what the control plane orders. It dials out only: where it runs, nothing needs to be reachable from outside
but, at a site, what machines boot from.

At a site, 'bcd site' talks to the machines' BMCs and serves network boot. On a machine that was booted to be worked on, 'bcd
ramdisk' is the first process; in its installed OS, 'bcd node' tells what the machine is.` + "\n" + exitStatus,
		Version: program.Version(),
	}
	return program.Group(root, siteCommand(), nodeCommand(), ramdiskCommand(), imageCommand(), program.VersionCommand("bcd", exitStatus))
}
