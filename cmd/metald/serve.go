package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/cmd/metald/plane"
	"github.com/better-compute/metal/cmd/program"
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
			master, token := c.masterKey(w), w.SecretFile("admin-token-file", c.adminTokenFile)
			if err := w.Err(); err != nil {
				return err
			}
			return unlessStopped(cmd.Context(), serve(cmd.Context(), c, master, token))
		},
	}
	c.bindStores(cmd.Flags())
	c.bindServe(cmd.Flags())
	c.log.Bind(cmd.Flags())
	return describeOptions(cmd)
}

func serve(ctx context.Context, c config, master postgres.MasterKey, token string) error {
	logger := c.log.Logger()
	return plane.Run(ctx, c.plane(master, token), func(a plane.Addresses) {
		logger.Info("serving", "address", a.API, "gateway", a.Gateway, "authority", a.CASHA256, "version", program.Version())
	})
}
