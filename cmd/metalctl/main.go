// Command metalctl is the command line of the control plane, for people and for scripts.
//
// It knows nothing but the HTTP API (package client) and the tables of the domain that it was built with (explain). One
// file per noun; app.go holds what all commands share, exit.go the exit codes, print.go the forms of output.
package main

import (
	"context"
	"os"

	"github.com/better-compute/metal/cmd/program"
)

func main() {
	ctx, stop := program.UntilSignal()
	code := run(ctx, os.Args[1:], standard())
	stop()
	os.Exit(code)
}

// run is main with everything handed in. It returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a)
	root.SetArgs(args)
	return a.finish(ctx, root.ExecuteContext(ctx))
}
