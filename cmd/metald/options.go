package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// An option may be given as a flag, in the environment as METAL_<NAME>, or in the file that --config names, the first of
// them winning. Secrets have no flag: a command line is seen by every user of the machine.

const configFlag = "config"

// secretOptions are options whose flag must not hold a secret; see refuseSecrets.
var secretOptions = []string{"postgres", "eventstore"}

func envName(flag string) string {
	return "METAL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// describeOptions tells in each flag's help that the environment may give it too.
func describeOptions(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String(configFlag, "", "a YAML file with any of these options, by their names")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage += " (" + envName(f.Name) + ")"
	})
	return cmd
}

// fillOptions takes from the environment and the file what no flag gave, and notes everything that is wrong there.
func fillOptions(cmd *cobra.Command, environ func(string) (string, bool)) *issues {
	w := &issues{given: map[string]string{}}
	refuseSecrets(cmd, w)
	flags := cmd.Flags()
	set := func(name, value, where string) {
		if flag := flags.Lookup(name); flag == nil || flag.Changed {
			return
		}
		w.given[name] = where
		if err := flags.Set(name, value); err != nil {
			w.at(where, "%v", cleaned(err))
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if value, ok := environ(envName(f.Name)); ok {
			set(f.Name, value, envName(f.Name))
		}
	})
	path, _ := flags.GetString(configFlag)
	for name, value := range readConfig(path, w) {
		if flags.Lookup(name) == nil || name == configFlag {
			w.at(path+": "+name, "there is no such option")
			continue
		}
		set(name, value, path+": "+name)
	}
	return w
}

// cleaned takes pflag's repetition of the value out of its error: the value may be a secret.
func cleaned(err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return errors.New(text)
}

func refuseSecrets(cmd *cobra.Command, w *issues) {
	for _, name := range secretOptions {
		f := cmd.Flags().Lookup(name)
		if f != nil && f.Changed && holdsPassword(f.Value.String()) {
			w.option(name, "a password on the command line is seen by everybody; give it in %s or the file", envName(name))
		}
	}
}

// holdsPassword finds a password in a URL or in key=value words.
func holdsPassword(dsn string) bool {
	if _, rest, isURL := strings.Cut(dsn, "://"); isURL {
		authority, _, _ := strings.Cut(rest, "/")
		user, _, hasUser := strings.Cut(authority, "@")
		return hasUser && strings.Contains(user, ":") || strings.Contains(rest, "password=")
	}
	return strings.Contains(dsn, "password")
}

func readConfig(path string, w *issues) map[string]string {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		w.option(configFlag, "%v", err)
		return nil
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		w.at(path, "it is not YAML of the form name: value")
		return nil
	}
	options := map[string]string{}
	for name, value := range values {
		switch value.(type) {
		case map[string]any, []any, nil:
			w.at(path+": "+name, "a single value is needed")
		default:
			options[name] = fmt.Sprint(value)
		}
	}
	return options
}
