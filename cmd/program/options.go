package program

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Environment is where options may be given that no flag gives: in variables that begin with the program's prefix, such as METAL_.
type Environment string

// Name is the variable of an option.
func (e Environment) Name(option string) string {
	return string(e) + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// Describe tells in each flag's help that the environment may give it too.
func (e Environment) Describe(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage += " (" + e.Name(f.Name) + ")" })
	return cmd
}

// Fill takes from the environment what no flag gave, and notes everything that is wrong there.
func (e Environment) Fill(cmd *cobra.Command, look func(string) (string, bool), w *Issues) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if value, ok := look(e.Name(f.Name)); ok {
			Set(cmd, f.Name, value, e.Name(f.Name), w)
		}
	})
}

// Set gives an option a value that stands at a place, unless it has been given one, and notes what is wrong with it.
func Set(cmd *cobra.Command, option, value, place string, w *Issues) {
	flag := cmd.Flags().Lookup(option)
	if flag == nil || flag.Changed {
		return
	}
	w.From(option, place)
	if err := cmd.Flags().Set(option, value); err != nil {
		w.At(place, "%v", cleaned(err))
	}
}

// cleaned takes pflag's repetition of the value out of its error: the value may be a secret.
func cleaned(err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return errors.New(text)
}
