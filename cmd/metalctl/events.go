package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

const eventsLong = `Shows the events of the log that the credential may follow, one on each line: without --follow
those after --after up to
now, with it also those to come, until interrupted. A connection that breaks is made again and nothing is missed.

With -o json every event is one line of JSON (NDJSON).`

// eventFlags say which events.
type eventFlags struct {
	feed   client.Feed
	after  uint64
	follow bool
	limit  int
}

func newEvents(a *app) *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use: "events", Short: "Show events as they happen", Args: cobra.NoArgs, Long: withExits(eventsLong, remoteExits),
		Example: "  metalctl events --follow --type 'node.provision.*'\n  metalctl events --after 0 -o json > events.ndjson",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.follow && !cmd.Flags().Changed("after") {
				return usage("--follow, or --after POSITION, or both are needed")
			}
			if cmd.Flags().Changed("after") {
				f.feed.After = &f.after
			}
			return a.events(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what happens from now on")
	flags.Uint64Var(&f.after, "after", 0, "begin after this position of the log; 0: from the beginning")
	flags.StringVar(&f.feed.Tenant, "tenant", "", "of this tenant")
	flags.StringVar(&f.feed.Subject, "subject", "", "about this, such as node/node_01k…")
	flags.StringVar(&f.feed.Node, "node", "", "of this machine, its workflows and its agent commands")
	flags.StringSliceVar(&f.feed.Types, "type", nil, "of this type, or of all that begin so: node.*; repeat for more")
	flags.IntVar(&f.limit, "limit", 0, "stop after this many; 0: none")
	return cmd
}

func (a *app) events(ctx context.Context, f eventFlags) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	if !f.follow {
		if f.feed.Until, err = c.Position(ctx); err != nil || f.feed.Until <= f.after {
			return err
		}
	}
	shown := 0
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for e, err := range c.Follow(ctx, f.feed) {
		if err != nil {
			return err
		}
		if err := a.eventLine(e); err != nil {
			return err
		}
		if shown++; shown == f.limit {
			return nil
		}
	}
	return ctx.Err()
}

// eventLine prints one event on its own line: nobody knows yet how wide the next one is.
func (a *app) eventLine(e contract.Event) error {
	switch a.flag.output {
	case "json":
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, escapedJSON(string(line)))
		return err
	case "yaml":
		if _, err := fmt.Fprintln(a.out, "---"); err != nil {
			return err
		}
		return a.document(e)
	case "name":
		_, err := fmt.Fprintln(a.out, e.ID)
		return err
	}
	_, err := fmt.Fprintf(a.out, "%d  %s  %-28s  %s  %s\n", e.Position, clock(e.At), e.Type, e.Subject, sentence(e))
	return err
}
