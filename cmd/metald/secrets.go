package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
)

func secretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Rotate the keys of the secret store",
		Long: `BMC credentials are sealed with AES-256-GCM under a data key, which the master key wraps.

'rotate' makes a new data key and seals every value again under it. 'rewrap' moves the store to another master key.
` + exitStatus,
	}
	cmd.AddCommand(rotateCommand(), rewrapCommand())
	return cmd
}

func rotateCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new data key and seal every secret again",
		Long: `rotate works while replicas run. A rotation that was interrupted is finished by the next one.
` + exitStatus,
		Example: `  metald secrets rotate --postgres 'postgres:///metal?host=/run/postgresql' --master-key-file /etc/metal/master-key`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillOptions(cmd, os.LookupEnv); err != nil {
				return err
			}
			return rotate(cmd.Context(), c)
		},
	}
	c.bindStores(cmd.Flags())
	c.bindLog(cmd.Flags())
	return describeOptions(cmd)
}

func rotate(ctx context.Context, c config) error {
	wrong := c.check(false)
	master, err := c.masterKey()
	if err := withIssue(wrong, "--master-key-file", err); err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, c.postgres, postgres.Options{Name: "metald secrets"})
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
		Long: `rewrap changes the master key from the present one to that in --new-master-key-file. Replicas that run go on; give them
the new key before their next start.
` + exitStatus,
		Example: `  metald secrets rewrap --postgres 'postgres:///metal?host=/run/postgresql' \
    --master-key-file /etc/metal/master-key --new-master-key-file /etc/metal/master-key.new`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillOptions(cmd, os.LookupEnv); err != nil {
				return err
			}
			return rewrap(cmd.Context(), c, to)
		},
	}
	c.bindStores(cmd.Flags())
	c.bindLog(cmd.Flags())
	cmd.Flags().StringVar(&to, "new-master-key-file", "", "file with the new master key")
	return describeOptions(cmd)
}

func rewrap(ctx context.Context, c config, to string) error {
	wrong := c.check(false)
	from, err := c.masterKey()
	wrong = withIssue(wrong, "--master-key-file", err)
	if to == "" {
		return withIssue(wrong, "--new-master-key-file", fault.New(fault.InvalidConfig, "--new-master-key-file is needed"))
	}
	next, err := postgres.MasterKeySource{File: to}.Load()
	if err := withIssue(wrong, "--new-master-key-file", err); err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, c.postgres, postgres.Options{Name: "metald secrets"})
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
