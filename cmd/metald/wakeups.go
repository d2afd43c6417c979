package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/metald/plane"
	"github.com/better-compute/metal/cmd/program"
)

func wakeupsCommand() *cobra.Command {
	var c config
	rebuild := &cobra.Command{
		Use:   "rebuild",
		Short: "Derive the wake-ups from the log again",
		Long: `rebuild goes through the log and wakes every machine in a state that moves by itself and every workflow that is not over, and
nothing else. Replicas go on meanwhile. Waking a key too much costs one look at it.
` + exitStatus,
		Example: "  metald wakeups rebuild --postgres 'postgres:///metal?host=/run/postgresql'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, false)
			if err := w.Err(); err != nil {
				return err
			}
			return rebuildWakeups(cmd.Context(), c)
		},
	}
	c.bindStores(rebuild.Flags())
	c.log.Bind(rebuild.Flags())
	return program.Group(&cobra.Command{
		Use: "wakeups", Short: "Rebuild the table of what process managers must look at",
		Long: `Process managers look at keys that are due: a table in PostgreSQL, which follows from the event log.` + "\n" + exitStatus,
	}, describeOptions(rebuild))
}

func rebuildWakeups(ctx context.Context, c config) error {
	s, err := plane.OpenStores(ctx, c.postgres, c.eventstore, c.log.Logger())
	if err != nil {
		return err
	}
	defer s.Close()
	due, err := plane.RebuildWakeups(ctx, s)
	if err != nil {
		return err
	}
	fmt.Printf("rebuilt: %d keys are due\n", due)
	return nil
}
