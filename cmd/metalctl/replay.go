package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

const replayLong = `Folds a machine's stream as the control plane does, and shows what each event changed, or with
-o json or yaml the whole
state after each. Nothing else can have been the state. Nothing is changed.

With --until it stops at a time (2026-01-31T12:00:00Z) or at a log position; with --at only the state at that moment is
shown. Needs compute:audit:read.`

func newReplay(a *app) *cobra.Command {
	var until, at string
	cmd := &cobra.Command{
		Use: "replay NODE", Short: "Show a machine's state after each of its events",
		Long:    withExits(replayLong, remoteExits),
		Example: "  metalctl replay node_01k… --until 90211\n  metalctl replay node_01k… --at 2026-01-31T12:00:00Z -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			replay, err := c.Replay(cmd.Context(), args[0], orElse(at, until))
			if err != nil {
				return err
			}
			if at != "" && len(replay.Items) > 0 {
				return a.stateAt(replay.Items[len(replay.Items)-1])
			}
			return a.replay(replay)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "stop at a time (RFC 3339) or a log position")
	cmd.Flags().StringVar(&at, "at", "", "show the state at a time (RFC 3339) or a log position, and nothing else")
	cmd.MarkFlagsMutuallyExclusive("until", "at")
	return cmd
}

func (a *app) stateAt(s contract.Step) error {
	if a.flag.output == "yaml" {
		return a.document(s.State)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, s.State, "", "  "); err != nil {
		return fmt.Errorf("the state cannot be read: %w", err)
	}
	_, err := fmt.Fprintln(a.out, escapedJSON(out.String()))
	return err
}

func (a *app) replay(r contract.Replay) error {
	switch a.flag.output {
	case "json", "yaml":
		return a.document(r)
	case "name":
		for _, s := range r.Items {
			if _, err := fmt.Fprintln(a.out, s.Event.ID); err != nil {
				return err
			}
		}
		return nil
	}
	before := map[string]any{}
	for _, s := range r.Items {
		var after map[string]any
		if err := json.Unmarshal(s.State, &after); err != nil {
			return fmt.Errorf("the state after version %d cannot be read: %w", s.Event.Version, err)
		}
		_, err := fmt.Fprintf(a.out, "%d  %s  %s  %s\n", s.Event.Version, clock(s.Event.At), s.Event.Type, sentence(s.Event))
		if err != nil {
			return err
		}
		for _, line := range differences(before, after) {
			if _, err := fmt.Fprintln(a.out, "      "+line); err != nil {
				return err
			}
		}
		before = after
	}
	return nil
}

// differences lists what changed between two states, by the names of their fields.
func differences(before, after map[string]any) []string {
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := before[name]
		is, has := after[name]
		switch {
		case !has:
			lines = append(lines, "- "+name+" "+short(was))
		case !had:
			lines = append(lines, "+ "+name+" "+short(is))
		case short(was) != short(is):
			lines = append(lines, "~ "+name+" "+short(was)+" → "+short(is))
		}
	}
	return lines
}

func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}
