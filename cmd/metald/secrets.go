package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/cmd/program"
)

func secretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Rotate the keys of the secret store",
		Long: `BMC credentials, user data, join tokens and the key of the agents' authority are sealed with AES-256-GCM under a data key,
which the master key wraps.

'rotate' makes a new data key and seals every value again under it. 'rewrap' moves the store to another master key.
` + exitStatus,
	}
	return program.Group(cmd, rotateCommand(), rewrapCommand())
}

func rotateCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new data key and seal every secret again",
		Long: `rotate works while replicas run, if they hold the present master key: after a rewrap, restart every replica with the new
master key before you rotate. A replica that still has the old one cannot read the new data key and answers UNAVAILABLE
until it is restarted. A rotation that was interrupted is finished by the next one.
` + exitStatus,
		Example: `  metald secrets rotate --postgres 'postgres:///metal?host=/run/postgresql' --master-key-file /etc/metal/master-key`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, false)
			master := c.masterKey(w)
			if err := w.Err(); err != nil {
				return err
			}
			return rotate(cmd.Context(), c, master)
		},
	}
	c.bindStores(cmd.Flags())
	c.log.Bind(cmd.Flags())
	return describeOptions(cmd)
}

// openSecrets connects to a database that has this program's schema.
func openSecrets(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	pool, err := postgres.Open(ctx, dsn, postgres.Options{Name: "metald secrets"})
	if err != nil {
		return nil, err
	}
	if err := postgres.Migrated(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func rotate(ctx context.Context, c config, master postgres.MasterKey) error {
	pool, err := openSecrets(ctx, c.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	secrets, err := postgres.NewSecrets(ctx, pool, master)
	if err != nil {
		return err
	}
	done, err := secrets.RotateDataKey(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("sealed %d secrets under a new data key\n", done.Reencrypted)
	return nil
}

func rewrapCommand() *cobra.Command {
	var c config
	var to string
	cmd := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap the store's keys under another master key",
		Long: `rewrap changes the master key from the present one to that in --new-master-key-file. Replicas that run go on
with the keys they hold, until the next rotation. The order is: rewrap, restart every replica with the new master key,
and only then rotate.
` + exitStatus,
		Example: `  metald secrets rewrap --postgres 'postgres:///metal?host=/run/postgresql' \
    --master-key-file /etc/metal/master-key --new-master-key-file /etc/metal/master-key.new`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, false)
			from, next := c.masterKey(w), newMasterKey(w, to)
			if err := w.Err(); err != nil {
				return err
			}
			return rewrap(cmd.Context(), c, from, next)
		},
	}
	c.bindStores(cmd.Flags())
	c.log.Bind(cmd.Flags())
	cmd.Flags().StringVar(&to, "new-master-key-file", "", "file with the new master key")
	return describeOptions(cmd)
}

func newMasterKey(w *program.Issues, path string) postgres.MasterKey {
	if path == "" {
		w.Option("new-master-key-file", "needed")
		return postgres.MasterKey{}
	}
	key, err := postgres.MasterKeySource{File: path}.Load()
	w.Refused("new-master-key-file", err)
	return key
}

func rewrap(ctx context.Context, c config, from, next postgres.MasterKey) error {
	pool, err := openSecrets(ctx, c.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	n, err := postgres.RewrapMaster(ctx, pool, from, next)
	if err != nil {
		return err
	}
	fmt.Printf("wrapped %d keys under master key %s\n", n, next.ID())
	return nil
}
