package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/metald/plane"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections/history"
)

func replayCommand() *cobra.Command {
	var c config
	var stream, until string
	cmd := &cobra.Command{
		Use:   "replay --stream STREAM",
		Short: "Print the state after each event of a stream, straight from the log",
		Long: `replay folds a stream with the code that decides, and prints each event and, for a node, the state after it: nothing else
can have been the state. It needs only the stores; no control plane has to run. It changes nothing.
` + exitStatus,
		Example: `  metald replay --stream node-node_01k… --postgres 'postgres:///metal?host=/run/postgresql'
  metald replay --stream node-node_01k… --until 2026-11-29T12:00:00Z`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.check(w, false)
			if stream == "" {
				w.Option("stream", "needed, such as node-node_01k…")
			}
			moment := parseUntil(w, until)
			if err := w.Err(); err != nil {
				return err
			}
			return replay(cmd.Context(), cmd.OutOrStdout(), c, event.Stream(stream), moment)
		},
	}
	c.bindStores(cmd.Flags())
	c.log.Bind(cmd.Flags())
	cmd.Flags().StringVar(&stream, "stream", "", "the stream: <category>-<id>")
	cmd.Flags().StringVar(&until, "until", "", "stop at this position or RFC 3339 time")
	return describeOptions(cmd)
}

// parseUntil reads --until; empty is no limit.
func parseUntil(w *program.Issues, until string) *history.Moment {
	if until == "" {
		return nil
	}
	m, err := history.ParseMoment("--until", until)
	w.Refused("until", err)
	return &m
}

func replay(ctx context.Context, w io.Writer, c config, stream event.Stream, moment *history.Moment) error {
	s, err := plane.OpenStores(ctx, c.postgres, c.eventstore, c.log.Logger())
	if err != nil {
		return err
	}
	defer s.Close()
	if stream.Category() != node.Category {
		return replayEvents(ctx, w, s.Log, stream)
	}
	n, err := id.Parse[id.Node](stream.ID())
	if err != nil {
		return fault.New(fault.InvalidInput, "%s", err)
	}
	steps, err := history.Replay(ctx, s.Log, n, moment, time.Now())
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := printStep(w, step.Event, step.State); err != nil {
			return err
		}
	}
	return nil
}

func replayEvents(ctx context.Context, w io.Writer, log event.Store, stream event.Stream) error {
	events, err := log.Read(ctx, stream, 0)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return fault.New(fault.NotFound, "there is no stream %s", stream)
	}
	for _, e := range events {
		if err := printStep(w, e, nil); err != nil {
			return err
		}
	}
	return nil
}

func printStep(w io.Writer, e event.Recorded, state any) error {
	_, err := fmt.Fprintf(w, "%d  position %s  %s  %s  by %s\n  %s\n", e.Version, e.Position, e.At.Format(time.RFC3339Nano), e.Type,
		e.Meta.Principal, e.Data)
	if err != nil || state == nil {
		return err
	}
	text, err := json.MarshalIndent(state, "  ", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "  %s\n", text)
	return err
}
