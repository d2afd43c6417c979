package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// verb is one verb against machines that exist.
type verb struct {
	name, short string
	under       string // the command that it is a part of; empty: none
	long        string // what happens to the machine
	example     string
	destroys    string               // what cannot be undone, for the question; empty: nothing
	flags       func(*cobra.Command) // nil: none of its own
	check       func() error         // of the flags; nil: nothing to check
	apply       func(context.Context, *client.Client, string, ...client.Option) (contract.Node, error)
}

// verbFlags are those of every verb.
type verbFlags struct {
	ifMatch uint64
	key     string
	watch   bool
	yes     bool
}

const destroysLong = `DESTRUCTIVE: %s. On a terminal it asks first; elsewhere --yes is needed.`

func (v verb) command(a *app) *cobra.Command {
	var f verbFlags
	long := strings.TrimSpace(v.long)
	if v.destroys != "" {
		long += "\n\n" + fmt.Sprintf(destroysLong, v.destroys)
	}
	cmd := &cobra.Command{
		Use: v.name + " NODE...", Short: v.short, Long: withExits(long, watchExits), Example: v.example,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := f.check(cmd, nodes); err != nil {
				return err
			}
			if v.check != nil {
				if err := v.check(); err != nil {
					return err
				}
			}
			return a.applyVerb(cmd, v, f, nodes)
		},
	}
	if v.under == "" {
		cmd.GroupID = groupVerbs
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.ifMatch, "if-match", 0, "only if the machine is still at this version, else exit 4")
	flags.StringVar(&f.key, "idempotency-key", "", "name this request: the same again gives the first outcome")
	flags.BoolVarP(&f.watch, "watch", "w", false, "then show what happens, until the machine rests; exit 7 if it fails")
	if v.destroys != "" {
		flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	}
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

func (f *verbFlags) check(cmd *cobra.Command, nodes []string) error {
	for _, flag := range []string{"if-match", "idempotency-key", "watch"} {
		if len(nodes) > 1 && cmd.Flags().Changed(flag) {
			return usage("--%s is for one machine at a time", flag)
		}
	}
	if cmd.Flags().Changed("if-match") && f.ifMatch == 0 {
		return usage("--if-match is a version of 1 or more")
	}
	return nil
}

func (f *verbFlags) options() []client.Option {
	var o []client.Option
	if f.ifMatch > 0 {
		o = append(o, client.IfMatch(f.ifMatch))
	}
	if f.key != "" {
		o = append(o, client.IdempotencyKey(f.key))
	}
	return o
}

// applyVerb goes on after a machine that refused, and ends with the first refusal.
func (a *app) applyVerb(cmd *cobra.Command, v verb, f verbFlags, nodes []string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	if v.destroys != "" {
		if err := a.confirm(cmd.Context(), fmt.Sprintf("%s %s: %s", v.name, strings.Join(nodes, ", "), v.destroys), f.yes); err != nil {
			return err
		}
	}
	var first error
	for _, id := range nodes {
		n, err := v.apply(cmd.Context(), c, id, f.options()...)
		if err == nil {
			err = a.verbDone(v, n)
		}
		switch {
		case err == nil:
		case len(nodes) == 1 || cmd.Context().Err() != nil:
			return err
		default:
			a.say("%s:", id)
			a.explainError(err)
			if first == nil {
				first = &told{err}
			}
		}
		if err == nil && f.watch {
			return a.watchVerb(cmd.Context(), c, n)
		}
	}
	return first
}

func (a *app) verbDone(v verb, n contract.Node) error {
	if a.flag.output != "table" && a.flag.output != "wide" {
		return nodeKind.one(a, n)
	}
	name := strings.TrimSpace(v.under + " " + v.name)
	_, err := fmt.Fprintf(a.out, "%s (%s): %s; %s, version %d\n", n.ID, n.Name, name, standing(n), n.Version)
	return err
}

// standing says in a few words where a machine is.
func standing(n contract.Node) string {
	s := n.Provision
	if m := marks(n); m != "" {
		s += ", " + strings.ReplaceAll(m, ",", ", ")
	}
	if n.PowerAction != "" {
		s += ", power " + n.PowerAction + " asked"
	}
	return s
}

// told is an error that was explained already.
type told struct{ error }

// Unwrap is the error.
func (t *told) Unwrap() error { return t.error }
