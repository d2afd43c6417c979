package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/program"
)

// An option may be given as a flag, in the environment as METAL_<NAME>, or in the file that --config names, the first of
// them winning. Secrets have no flag: a command line is seen by every user of the machine.

const environment program.Environment = "METAL_"

const configFlag = "config"

// secretOptions are options whose flag must not hold a secret; see refuseSecrets.
var secretOptions = []string{"postgres", "eventstore"}

// describeOptions tells in each flag's help that the environment may give it too.
func describeOptions(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String(configFlag, "", "a YAML file with any of these options, by their names")
	return environment.Describe(cmd)
}

// fillOptions takes from the environment and the file what no flag gave, and notes everything that is wrong there.
func fillOptions(cmd *cobra.Command, look func(string) (string, bool)) *program.Issues {
	w := &program.Issues{}
	refuseSecrets(cmd, w)
	environment.Fill(cmd, look, w)
	flags := cmd.Flags()
	path, _ := flags.GetString(configFlag)
	for name, value := range readConfig(path, w) {
		if flags.Lookup(name) == nil || name == configFlag {
			w.At(path+": "+name, "there is no such option")
			continue
		}
		program.Set(cmd, name, value, path+": "+name, w)
	}
	return w
}

func refuseSecrets(cmd *cobra.Command, w *program.Issues) {
	for _, name := range secretOptions {
		f := cmd.Flags().Lookup(name)
		if f != nil && f.Changed && holdsPassword(f.Value.String()) {
			w.Option(name, "a password on the command line is seen by everybody; give it in %s or the file", environment.Name(name))
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

func readConfig(path string, w *program.Issues) map[string]string {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		w.Option(configFlag, "%v", err)
		return nil
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		w.At(path, "it is not YAML of the form name: value")
		return nil
	}
	options := map[string]string{}
	for name, value := range values {
		switch value.(type) {
		case map[string]any, []any, nil:
			w.At(path+": "+name, "a single value is needed")
		default:
			options[name] = fmt.Sprint(value)
		}
	}
	return options
}
