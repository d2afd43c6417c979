package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/agent/ramdisk"
	"github.com/better-compute/metal/adapters/bootimage"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/fault"
)

// startedAsInit tells whether the kernel of a ramdisk started this program: then there are no arguments to go by.
func startedAsInit() bool { return os.Getpid() == 1 && filepath.Base(os.Args[0]) == "init" }

func ramdiskCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ramdisk",
		Short: "Be the first process of a ramdisk: bring the machine up, join, and carry out orders",
		Long: `ramdisk is what a machine runs that was booted from the network to be worked on. It is the first process (/init) of what
'bcd image build-ramdisk' makes, takes its settings from the kernel's command line, and refuses to run anywhere else. What it
does to the machine, and that may be to wipe its disks, is what the control plane orders; without an order it waits.

On the kernel's command line, beside what the site agent's boot script says:
  metal.reboot-after=30m  how long the gateway may be out of reach before the machine starts anew
  metal.lldp-wait=32s     how long a link may have been up before the inventory is taken without its LLDP neighbour
  metal.log=info          what to log to the console: debug, info, warn or error
` + exitStatus,
		Example: "  bcd image build-ramdisk --kernel-package linux-image-6.1.0-57-amd64_6.1.192-3_amd64.deb --out /srv/boot",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if os.Getpid() != 1 {
				return fault.New(fault.InvalidConfig, "this is not the first process of a ramdisk: nothing was done").
					WithRemedy("run 'bcd node' in an installed OS")
			}
			ramdisk.Start(program.Version(), "/"+bootimage.ModuleList)
			return nil
		},
	}
}
