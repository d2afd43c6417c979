package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var findingKind = kind[contract.Finding]{
	id: func(f contract.Finding) string { return f.Subject },
	columns: []column[contract.Finding]{
		{name: "SEVERITY", of: func(f contract.Finding) string { return f.Severity }, shade: severityShade},
		{name: "CODE", of: func(f contract.Finding) string { return f.Code }},
		{name: "SUBJECT", of: func(f contract.Finding) string { return f.Subject }},
		{name: "SINCE", of: func(f contract.Finding) string { return since(f.Since) }},
		{name: "MESSAGE", of: func(f contract.Finding) string { return f.Message }},
		{name: "REMEDY", of: func(f contract.Finding) string { return f.Remedy }},
		{name: "TENANT", wide: true, of: func(f contract.Finding) string { return f.Tenant }},
	},
}

func since(t time.Time) string { return clock(t) }

func severityShade(s string) string {
	if s == "warning" {
		return yellow
	}
	return red
}

const doctorLong = `Lists what needs somebody: machines and workflows that failed or stand still, process managers that fail at
a machine again and again, read models that stopped or lag, addresses that nobody will give back. Each finding says what to do.
Nothing is changed.

Exit status 0 says that there is nothing, 7 that there is something.`

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "List what needs somebody's attention",
		Long: withExits(doctorLong, watchExits), Args: cobra.NoArgs,
		Example: "  metalctl doctor || echo 'somebody is needed'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			found, err := client.Collect(c.Doctor(cmd.Context()), 0)
			if err != nil {
				return err
			}
			if len(found) == 0 && a.flag.output == "table" {
				_, err := fmt.Fprintln(a.out, "nothing needs attention")
				return err
			}
			if err := findingKind.list(a, found); err != nil || len(found) == 0 {
				return err
			}
			return errUnwell
		},
	}
}
