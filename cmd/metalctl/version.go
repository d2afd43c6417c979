package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/cmd/program"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs, GroupID: groupLocal,
		Long:    withExits("Prints the version of this program, and what it was built for.", localExits),
		Example: "  metalctl version",
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{program.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			switch a.flag.output {
			case "json", "yaml":
				return a.document(v)
			}
			_, err := fmt.Fprintf(a.out, "metalctl %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return err
		},
	}
}
