package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
)

func serveCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane over your PostgreSQL",
		Long: `serve runs one replica of the control plane. Any number of replicas may run over the same stores, all of them answering;
they need the same master key. It migrates the database when it starts.

The first start makes the first administrator and prints its token, once, to standard output; or it takes the token in
--admin-token-file.
` + exitStatus,
		Example: `  openssl rand -hex 32 > /etc/metal/master-key && chmod 600 /etc/metal/master-key
  metald serve --postgres 'postgres:///metal?host=/run/postgresql' --master-key-file /etc/metal/master-key \
    --tls-cert /etc/metal/tls.crt --tls-key /etc/metal/tls.key
  METAL_POSTGRES=postgres://metal:…@db/metal metald serve --eventstore esdb://log.example:2113 --insecure-http --listen 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, true)
			master, token := c.masterKey(w), c.adminToken(w)
			if err := w.err(); err != nil {
				return err
			}
			return unlessStopped(cmd.Context(), serve(cmd.Context(), c, master, token))
		},
	}
	c.bindStores(cmd.Flags())
	c.bindServe(cmd.Flags())
	c.bindLog(cmd.Flags())
	return describeOptions(cmd)
}

func serve(ctx context.Context, c config, master postgres.MasterKey, token string) error {
	logger := c.logger()
	return run(ctx, c, master, token, logger, func(address string) {
		logger.Info("serving", "address", address, "version", version())
	})
}

// administrator makes sure that somebody can log in: with the token that was given, or, at the first start, with one that
// is made and printed once.
func administrator(ctx context.Context, service *commands.Service, secrets *postgres.Secrets, given string, logger *slog.Logger,
) error {
	hasToken, err := service.Bootstrap(ctx)
	if err != nil {
		return err
	}
	switch {
	case given != "":
		return service.GiveAdministratorToken(ctx, given, "set by file")
	case hasToken:
		return nil
	}
	token := secrets.Mint(firstToken)
	if err := service.GiveAdministratorToken(ctx, token, "made at the first start"); err != nil {
		return err
	}
	logger.Info("made the first administrator; its token is printed once, to standard output")
	fmt.Println(token)
	return nil
}

// firstToken names the command of the first token: replicas that start together print the same one.
var firstToken = uuid.MustParse("00000000-0000-7000-8000-000000000003")
