package osimage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/better-compute/metal/adapters/bootimage"
	"github.com/better-compute/metal/test/machine/assets"
)

// modules are what the lab's machines are made of, as far as a kernel has a driver for it.
var modules = []string{
	"virtio_pci", "virtio_rng", "virtio_net", "virtio_blk", "virtio_scsi", "nvme", "sd_mod", "ata_piix", "ahci", "e1000", "button", "evdev",
}

// OS makes the image of the small OS, of so many MiB: the kernel of the lab with these arguments, and osinit as its first
// process, which is built here with the Go toolchain.
func OS(ctx context.Context, repository string, a assets.Assets, size int, arguments string) ([]byte, error) {
	first, err := buildInit(ctx, repository)
	if err != nil {
		return nil, err
	}
	var initrd bytes.Buffer
	_, err = bootimage.Ramdisk{
		Agent: first, Modules: os.DirFS(a.Modules), Compress: true,
		Names: modules,
	}.Initramfs(&initrd)
	if err != nil {
		return nil, err
	}
	kernel, err := os.ReadFile(a.Kernel)
	if err != nil {
		return nil, err
	}
	stub, err := os.ReadFile(a.Stub)
	if err != nil {
		return nil, err
	}
	uki, err := bootimage.Unified(stub, kernel, initrd.Bytes(), arguments)
	if err != nil {
		return nil, err
	}
	return Build(uki, size)
}

func buildInit(ctx context.Context, repository string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "osinit-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the way of nobody
	program := filepath.Join(dir, "osinit")
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", program, "./test/machine/osinit")
	c.Dir, c.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the OS: %w: %s", err, out)
	}
	return os.ReadFile(program)
}
