// Command metalsim is a simulated site: machines with management controllers and disks, to try, load and break a control
// plane with.
package main

import (
	"context"
	"io"
	"os"

	"github.com/better-compute/metal/cmd/program"
)

const exitStatus = `
EXIT STATUS
  0  it did what it was asked, or was stopped by a signal
  1  it failed; the reason is on standard error
  2  the arguments or a file of faults are wrong; every issue is listed`

func main() {
	ctx, stop := program.UntilSignal()
	code := execute(ctx, os.Stdout, os.Stderr, os.Args[1:]...)
	stop()
	os.Exit(code)
}

// execute runs one command line and gives the exit code.
func execute(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	root := siteCommand()
	root.AddCommand(ctlCommand())
	return program.ExitCode(program.Execute(ctx, root, stdout, stderr, args...))
}
