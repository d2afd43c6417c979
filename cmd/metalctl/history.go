package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var eventKind = kind[contract.Event]{
	id: func(e contract.Event) string { return e.ID },
	columns: []column[contract.Event]{
		{name: "POSITION", of: func(e contract.Event) string { return strconv.FormatUint(e.Position, 10) }},
		{name: "AT", of: func(e contract.Event) string { return clock(e.At) }},
		{name: "TYPE", of: func(e contract.Event) string { return e.Type }},
		{name: "SUBJECT", of: func(e contract.Event) string { return e.Subject }},
		{name: "WHO", of: func(e contract.Event) string { return e.Principal }},
		{name: "WHAT", of: sentence},
		{name: "STREAM", wide: true, of: func(e contract.Event) string { return e.Stream }},
		{name: "VERSION", wide: true, of: func(e contract.Event) string { return strconv.FormatUint(e.Version, 10) }},
		{name: "REQUEST", wide: true, of: func(e contract.Event) string { return e.RequestID }},
		{name: "CORRELATION", wide: true, of: func(e contract.Event) string { return e.CorrelationID }},
		{name: "DATA", wide: true, of: func(e contract.Event) string { return string(e.Data) }},
	},
}

const historyLong = `Shows everything that happened to a machine, to its workflows and to the commands its agents
were given, in the order in
which it happened: who asked, and what it was. Nothing is changed. With --newest the newest comes first.`

func newHistory(a *app) *cobra.Command {
	var newest bool
	var limit int
	cmd := &cobra.Command{
		Use: "history NODE", Short: "Show everything that happened to a machine",
		Long: withExits(historyLong, remoteExits), Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNodes,
		Example: "  metalctl history node_01k…\n  metalctl history node_01k… --newest --limit 10 -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAll(a, eventKind, func(c *client.Client) ([]contract.Event, error) {
				return client.Collect(c.History(cmd.Context(), args[0], !newest), limit)
			})
		},
	}
	cmd.Flags().BoolVar(&newest, "newest", false, "the newest first")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0: all")
	return cmd
}
