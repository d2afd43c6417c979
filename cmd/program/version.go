package program

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// VersionCommand prints the version of a program, whose exit codes its help tells.
func VersionCommand(name, exitStatus string) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "version prints the module's version, or the commit that this program was built from.\n" + exitStatus,
		Example: "  " + name + " version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), Version())
			return err
		},
	}
}

// Version is the module's version, or the commit that was built.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
