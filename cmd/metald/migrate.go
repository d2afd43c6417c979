package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/postgres"
)

func migrateCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this program's schema",
		Long: `migrate applies the migrations that are missing, forward only, each in a transaction. serve does the same when it starts;
run it beforehand where the account of serve may not change tables. Running it twice changes nothing.
` + exitStatus,
		Example: `  metald migrate --postgres 'postgres:///metal?host=/run/postgresql'`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, false)
			if err := w.Err(); err != nil {
				return err
			}
			return migrate(cmd.Context(), c)
		},
	}
	c.bindStores(cmd.Flags())
	c.log.Bind(cmd.Flags())
	return describeOptions(cmd)
}

func migrate(ctx context.Context, c config) error {
	pool, err := postgres.Open(ctx, c.postgres, postgres.Options{Name: "metald migrate"})
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool); err != nil {
		return err
	}
	fmt.Println("the database has this program's schema")
	return nil
}
