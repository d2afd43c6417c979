package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/metald/plane"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections"
)

func projectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projections",
		Short: "Rebuild or verify the read models",
		Long: `The read models are caches: any of them can be rebuilt from the event log at any time, and verify proves that one holds
what the log says.` + "\n" + exitStatus,
	}
	return program.Group(cmd,
		projectionCommand("rebuild", "Fold a read model afresh from the log and swap it in",
			`rebuild folds the log into tables beside the live ones and swaps them in one transaction: reads never go dark, and
replicas go on meanwhile.`, rebuild),
		projectionCommand("verify", "Compare read models with a fresh fold of the log",
			`verify folds the log afresh, up to where the read model is, and compares row by row. It changes nothing. A difference is
told and makes the exit code 1.`, verify),
	)
}

func projectionCommand(use, short, long string, do func(context.Context, *projections.Runner, string) error) *cobra.Command {
	var c config
	names := modelNames()
	cmd := &cobra.Command{
		Use:       use + " [NAME…]",
		Short:     short,
		Long:      long + "\n\nNAME is one of " + strings.Join(names, ", ") + "; none is all of them.\n" + exitStatus,
		Example:   "  metald projections " + use + " metalview --postgres 'postgres:///metal?host=/run/postgresql'",
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, false)
			if err := w.Err(); err != nil {
				return err
			}
			return onProjections(cmd.Context(), c, args, do)
		},
	}
	c.bindStores(cmd.Flags())
	c.log.Bind(cmd.Flags())
	return describeOptions(cmd)
}

func modelNames() []string {
	var names []string
	for _, p := range plane.ReadModels() {
		names = append(names, p.Name)
	}
	return names
}

func onProjections(ctx context.Context, c config, names []string, do func(context.Context, *projections.Runner, string) error,
) error {
	known := modelNames()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fault.New(fault.InvalidConfig, "there is no read model %q", name).
				WithRemedy("one of " + strings.Join(known, ", "))
		}
	}
	if len(names) == 0 {
		names = known
	}
	s, err := plane.OpenStores(ctx, c.postgres, c.eventstore, c.log.Logger())
	if err != nil {
		return err
	}
	defer s.Close()
	runner, err := projections.NewRunner(s.Pool, s.Log, plane.ReadModels()...)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := do(ctx, runner, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func rebuild(ctx context.Context, runner *projections.Runner, name string) error {
	if err := runner.Rebuild(ctx, name, report(name)); err != nil {
		return err
	}
	fmt.Printf("%s: rebuilt\n", name)
	return nil
}

func verify(ctx context.Context, runner *projections.Runner, name string) error {
	found, err := runner.Verify(ctx, name, report(name))
	if err != nil {
		return err
	}
	for _, d := range found {
		fmt.Printf("%s: %s\n", name, strings.ReplaceAll(d.String(), "\n", "\n"+name+": "))
	}
	if len(found) > 0 {
		return fault.New(fault.Internal, "%d rows differ from the log", len(found)).
			WithRemedy("metald projections rebuild " + name + ", and report it: a row must follow from the log alone")
	}
	fmt.Printf("%s: every row is what the log says\n", name)
	return nil
}

// report shows progress on standard error.
func report(name string) func(projections.Progress) {
	return func(p projections.Progress) {
		fmt.Fprintf(os.Stderr, "%s: %d events, at position %s of %s\n", name, p.Events, p.Position, p.Head)
	}
}
