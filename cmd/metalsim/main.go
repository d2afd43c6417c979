// Command metalsim is a simulated site: machines with management controllers and disks, to try, load and break a control
// plane with.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/domain/fault"
)

// The exit codes, told in every command's help.
const (
	exitFailed = 1
	exitUsage  = 2
)

const exitStatus = `
EXIT STATUS
  0  it did what it was asked, or was stopped by a signal
  1  it failed; the reason is on standard error
  2  the arguments or a file of faults are wrong; every issue is listed`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := execute(ctx, os.Stdout, os.Stderr, os.Args[1:]...)
	stop()
	os.Exit(code)
}

// execute runs one command line and gives the exit code.
func execute(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	root := siteCommand()
	root.AddCommand(ctlCommand())
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
		err = fault.New(fault.InvalidInput, "%s", err).WithRemedy("see '" + cmd.CommandPath() + " --help'")
	}
	return complain(stderr, err)
}

// complain tells a person what went wrong and what to do next, and gives the exit code.
func complain(w io.Writer, err error) int {
	var f *fault.Error
	if !errors.As(err, &f) {
		_, _ = fmt.Fprintln(w, "metalsim:", err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(w, "metalsim: %s (%s)\n", f.Message, f.Code)
	for _, i := range f.Issues {
		_, _ = fmt.Fprintf(w, "  %s: %s\n", i.Path, i.Message)
	}
	if f.Remedy != "" {
		_, _ = fmt.Fprintln(w, "  what to do:", f.Remedy)
	}
	if f.Code == fault.InvalidInput || f.Code == fault.InvalidConfig {
		return exitUsage
	}
	return exitFailed
}

// version is the module's version, or the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
