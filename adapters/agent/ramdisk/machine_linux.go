package ramdisk

import (
	"context"
	"io/fs"
	"log/slog"

	"github.com/better-compute/metal/adapters/agent/linux"
)

// machine is the machine under the ramdisk: it is this process's own.
type machine struct {
	*linux.Machine
	root fs.FS
	log  *slog.Logger
}

func newMachine(seen *linux.Machine, root fs.FS, log *slog.Logger) *machine {
	return &machine{Machine: seen, root: root, log: log}
}

// Reboot restarts the machine at once: there is nothing that has to be ended first.
func (m *machine) Reboot(context.Context) error { return restart() }

// PowerOff switches it off.
func (m *machine) PowerOff(context.Context) error { return powerOff() }
