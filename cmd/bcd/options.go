package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/better-compute/metal/domain/fault"
)

// An option may be given as a flag, or in the environment as BCD_<NAME>; the flag wins. Secrets are given as files.

func envName(flag string) string {
	return "BCD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// describeOptions tells in each flag's help that the environment may give it too.
func describeOptions(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage += " (" + envName(f.Name) + ")" })
	return cmd
}

// fillOptions takes from the environment what no flag gave, and notes everything that is wrong there.
func fillOptions(cmd *cobra.Command, environ func(string) (string, bool)) *issues {
	w := &issues{given: map[string]string{}}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := environ(envName(f.Name))
		if !ok || f.Changed {
			return
		}
		w.given[f.Name] = envName(f.Name)
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			w.option(f.Name, "%s", cleaned(err))
		}
	})
	return w
}

// cleaned takes pflag's repetition of the value out of its error.
func cleaned(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}

// issues collects everything that is wrong with the options, so that all of it is told at once.
type issues struct {
	found []fault.Issue
	given map[string]string // which variable an option came from
}

// option notes what is wrong with an option, at the place that gave it.
func (w *issues) option(name, format string, args ...any) {
	w.found = append(w.found, fault.Issue{Path: cmp.Or(w.given[name], "--"+name), Message: fmt.Sprintf(format, args...)})
}

// err is INVALID_CONFIG with every issue, or nil where nothing is wrong.
func (w *issues) err() error {
	if len(w.found) == 0 {
		return nil
	}
	slices.SortStableFunc(w.found, func(a, b fault.Issue) int { return cmp.Compare(a.Path, b.Path) })
	return &fault.Error{
		Code: fault.InvalidConfig, Message: "the configuration is not valid", Issues: w.found, Remedy: "see --help",
	}
}
