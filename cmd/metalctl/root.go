package main

import "github.com/spf13/cobra"

// The groups of the help.
const (
	groupVerbs  = "verbs"
	groupReads  = "reads"
	groupEstate = "estate"
	groupAccess = "access"
	groupLocal  = "local"
)

const rootLong = `metalctl speaks to a bare-metal control plane: verbs that change machines, reads that show them,
and what happened.

Which control plane: --url, else METAL_URL, else the context named by --context or METALCTL_CONTEXT, else the current
context (see metalctl context). The token comes from --token-file, METAL_TOKEN, METAL_TOKEN_FILE or the context; it is
never given on the command line, where other users of this machine could read it.

Answers go to standard output, as tables or with -o json, yaml, name or wide; everything else goes to standard error.`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use: "metalctl", Short: "Command line of the bare-metal control plane", Long: withExits(rootLong, allExits()),
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help() // help that cannot be written is told to nobody
			return usage("a command is needed")
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.flag.check() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: groupVerbs, Title: "Change a machine:"},
		&cobra.Group{ID: groupReads, Title: "See what is and what happened:"},
		&cobra.Group{ID: groupEstate, Title: "Tenants, sites, pools:"},
		&cobra.Group{ID: groupAccess, Title: "Who may do what:"},
		&cobra.Group{ID: groupLocal, Title: "This program:"},
	)
	root.SetHelpCommandGroupID(groupLocal)
	root.SetCompletionCommandGroupID(groupLocal)
	a.flag.add(root)
	addVerbs(root, a)
	addReads(root, a)
	addEstate(root, a)
	addAccess(root, a)
	root.AddCommand(newContext(a), newExplain(a), newVersion(a))
	a.refuseUnknown(root)
	return root
}

func (f *globalFlags) add(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.context, "context", "", "context to use (METALCTL_CONTEXT)")
	flags.StringVar(&f.url, "url", "", "address of the control plane (METAL_URL)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the bearer token (METAL_TOKEN_FILE, or METAL_TOKEN itself)")
	flags.StringVar(&f.tls.CAFile, "ca-file", "", "PEM certificates to trust instead of the system's (METAL_CA_FILE)")
	flags.StringVar(&f.tls.CertFile, "cert-file", "", "PEM certificate to show (METAL_CERT_FILE)")
	flags.StringVar(&f.tls.KeyFile, "key-file", "", "PEM key of the certificate to show (METAL_KEY_FILE)")
	flags.StringVarP(&f.output, "output", "o", "table", "form of the answer: table, wide, json, yaml or name")
	flags.BoolVar(&f.noHeaders, "no-headers", false, "leave the header of a table out")
	flags.StringVar(&f.color, "color", "auto", "colour: auto (on a terminal, unless NO_COLOR is set), always or never")
	_ = root.RegisterFlagCompletionFunc("output", words(forms...)) // the flag was made above
	_ = root.RegisterFlagCompletionFunc("color", words("auto", "always", "never"))
}

func (f *globalFlags) check() error {
	if !oneOf(f.output, forms) {
		return usage("--output is one of table, wide, json, yaml, name; not %q", f.output)
	}
	if !oneOf(f.color, []string{"auto", "always", "never"}) {
		return usage("--color is one of auto, always, never; not %q", f.color)
	}
	return nil
}

func oneOf(s string, of []string) bool {
	for _, o := range of {
		if s == o {
			return true
		}
	}
	return false
}

// words completes a flag or an argument with a fixed list.
func words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

func allExits() []exitCode {
	all := make([]exitCode, len(exitTable))
	for i, row := range exitTable {
		all[i] = row.code
	}
	return all
}
