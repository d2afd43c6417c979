package main

import (
	"bufio"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const contextLong = `A context names a control plane and how to reach it, so that commands need no flags.

Contexts are kept in metalctl/contexts.yaml under XDG_CONFIG_HOME (default ~/.config), readable by you alone (mode
0600).`

func newContext(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Short: "Name control planes and choose one",
		Long: withExits(contextLong, localExits), GroupID: groupLocal,
	}
	cmd.AddCommand(newContextAdd(a), newContextUse(), newContextList(a), newContextRemove())
	return cmd
}

const contextAddLong = `Adds a context, or replaces the one of that name, and makes it the current one.

With --token-file the context remembers where the token is. Otherwise the token itself is asked for on the terminal, or
read from the first line of standard input, and kept in the file of contexts.`

func newContextAdd(a *app) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "add NAME --url URL [--token-file FILE]", Short: "Add a context and use it",
		Long:    withExits(contextAddLong, localExits),
		Example: "  metalctl context add lab --url https://metal.lab.example:8443 --token-file ~/.metal/token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.URL, t.TokenFile = a.flag.url, a.flag.tokenFile
			t.CAFile, t.CertFile, t.KeyFile = a.flag.tls.CAFile, a.flag.tls.CertFile, a.flag.tls.KeyFile
			return a.addContext(cmd.Context(), args[0], t)
		},
	}
	return cmd
}

func (a *app) addContext(ctx context.Context, name string, t target) error {
	if t.URL == "" {
		return usage("--url is needed")
	}
	for _, file := range []*string{&t.TokenFile, &t.CAFile, &t.CertFile, &t.KeyFile} {
		if *file == "" {
			continue
		}
		whole, err := filepath.Abs(*file)
		if err != nil {
			return usage("%s: %s", *file, err)
		}
		*file = whole
	}
	if t.TokenFile == "" {
		token, err := a.secret(ctx, "Token: ")
		if err != nil {
			return err
		}
		t.Token = token
	}
	if token, err := t.token(); err != nil || token == "" {
		return usage("there is no token in %s", orElse(t.TokenFile, "standard input"))
	}
	all, err := readContexts()
	if err != nil {
		return err
	}
	if all.Contexts == nil {
		all.Contexts = map[string]target{}
	}
	all.Contexts[name], all.Current = t, name
	return all.write()
}

func newContextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one",
		Long:    withExits("Makes a context the current one.", localExits),
		Example: "  metalctl context use lab", Args: cobra.ExactArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			if _, known := all.Contexts[args[0]]; !known {
				return usage("there is no context %q; see `metalctl context list`", args[0])
			}
			all.Current = args[0]
			return all.write()
		},
	}
}

func newContextRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a context",
		Long:    withExits("Forgets a context, and the token that is kept with it.", localExits),
		Example: "  metalctl context remove lab", Args: cobra.ExactArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			if _, known := all.Contexts[args[0]]; !known {
				return usage("there is no context %q; see `metalctl context list`", args[0])
			}
			delete(all.Contexts, args[0])
			if all.Current == args[0] {
				all.Current = ""
			}
			return all.write()
		},
	}
}

// shownContext is a context without its token.
type shownContext struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	URL     string `json:"url"`
	Token   string `json:"token"` // where it is
}

var contextKind = kind[shownContext]{
	id: func(c shownContext) string { return c.Name },
	columns: []column[shownContext]{
		{name: "CURRENT", of: func(c shownContext) string { return mark(c.Current) }},
		{name: "NAME", of: func(c shownContext) string { return c.Name }},
		{name: "URL", of: func(c shownContext) string { return c.URL }},
		{name: "TOKEN", of: func(c shownContext) string { return c.Token }},
	},
}

func newContextList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the contexts", Long: withExits("Lists the contexts. No token is shown.", localExits),
		Example: "  metalctl context list", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			var shown []shownContext
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				t := all.Contexts[name]
				shown = append(shown, shownContext{name, name == all.Current, t.URL, orElse(t.TokenFile, "kept here")})
			}
			return contextKind.list(a, shown)
		},
	}
}

func completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(all.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func mark(yes bool) string {
	if yes {
		return "*"
	}
	return ""
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// firstLine reads one line of standard input.
func (a *app) firstLine() (string, error) {
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && line == "" {
		return "", usage("nothing on standard input")
	}
	return strings.TrimRight(line, "\r\n"), nil
}
