package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agent/linux"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/agentcommand"
)

func nodeCommand() *cobra.Command {
	var c config
	var file string
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the agent of an installed OS: it tells what the machine is, and restarts it",
		Long: `node runs the agent in the OS of a machine. It joins with the join token that the machine was deployed with, or with one of the
role node; then it has a certificate in --state-dir, which it renews by itself. Run it as root: the firmware's serial number
and UUID, which a token may expect, are readable by root only.
` + exitStatus,
		Example: `  bcd node --config /etc/bcd/agent.json
  bcd node --gateway https://metal.example:8444 --ca-sha256 3f1c…9a --token-file /etc/bcd/token
  BCD_GATEWAY=https://metal.example:8444 BCD_CA_SHA256=3f1c…9a bcd node --state-dir /var/lib/bcd`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := &program.Issues{}
			environment.Fill(cmd, os.LookupEnv, w)
			token := c.readInstalled(file, w)
			c.check(w)
			if c.tokenFile != "" || token == "" {
				token = c.token(w)
			}
			if err := w.Err(); err != nil {
				return err
			}
			return runNode(cmd.Context(), c, token)
		},
	}
	c.bind(cmd.Flags())
	cmd.Flags().StringVar(&file, "config", "",
		"file with gateway, caSha256 and token, as user data leaves it in /etc/bcd/agent.json; options go before it")
	return environment.Describe(cmd)
}

func runNode(ctx context.Context, c config, token string) error {
	machine, err := linux.Open(os.DirFS("/"))
	if err != nil {
		return err
	}
	return agent.Run(ctx, agent.Options{
		Gateway: c.gateway, CA: c.ca, Token: token, Role: agentcommand.RoleNode, State: agent.FileState(c.stateDir), Machine: machine,
		Version: program.Version(), Name: c.name, Logger: c.log.Logger(), Room: 1,
		Kinds: agent.MachineHandlers(agent.MachineDeps{Machine: machine, Role: agentcommand.RoleNode, Logger: c.log.Logger()}),
	})
}
