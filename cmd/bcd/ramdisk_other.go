//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/better-compute/metal/domain/fault"
)

func startedAsInit() bool { return false }

func ramdiskCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "ramdisk",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fault.New(fault.InvalidConfig, "a ramdisk is Linux")
		},
	}
}
