package ramdisk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/disk/blockdev"
)

// Kexec starts the OS on a disk. Where its kernel is not found, or this kernel may not start another one, the machine
// restarts: the firmware finds the disk too.
func (m *machine) Kexec(ctx context.Context, diskKey string) error {
	err := m.startInstalled(ctx, diskKey)
	m.log.Warn("the installed kernel is left to the firmware", "disk", diskKey, "reason", err)
	return restart()
}

// startInstalled returns only where it could not.
func (m *machine) startInstalled(ctx context.Context, diskKey string) error {
	devices, err := m.devices(ctx)
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Info().Key() != diskKey {
			continue
		}
		if err := d.Sync(ctx); err != nil {
			return err
		}
		found, err := m.installedOn(d)
		if err != nil {
			return err
		}
		return start(found)
	}
	return errors.New("the disk is not in the machine")
}

func (m *machine) installedOn(d *blockdev.Device) (installed, error) {
	partitions, err := d.Partitions(m.root)
	if err != nil {
		return installed{}, fmt.Errorf("read the partition table: %w", err)
	}
	for _, p := range partitions {
		for _, kind := range []string{"vfat", "ext4", "xfs"} {
			m.modules.load(kind)
			found, err := onFilesystem(p, kind)
			if err == nil {
				m.log.Info("an installed kernel", "partition", p, "arguments", found.arguments)
				return found, nil
			}
			m.log.Debug("no kernel", "partition", p, "as", kind, "reason", err)
		}
	}
	return installed{}, errNoKernel
}

// onFilesystem mounts a partition for as long as it is looked at. Nothing is written to it, not even its journal.
func onFilesystem(partition, kind string) (out installed, err error) {
	const at = "/mnt"
	options := map[string]string{"ext4": "noload", "xfs": "norecovery"}[kind]
	if err := unix.Mount(partition, at, kind, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, unix.Unmount(at, 0)) }()
	return findInstalled(os.DirFS(at))
}

// start hands the machine over to another kernel.
func start(os installed) error {
	kernel, err := inMemory("kernel", os.kernel)
	if err != nil {
		return err
	}
	defer unix.Close(kernel) //nolint:errcheck // it was read
	flags, initrd := unix.KEXEC_FILE_NO_INITRAMFS, -1
	if len(os.initrd) > 0 {
		if initrd, err = inMemory("initrd", os.initrd); err != nil {
			return err
		}
		defer unix.Close(initrd) //nolint:errcheck // it was read
		flags = 0
	}
	if err := unix.KexecFileLoad(kernel, initrd, os.arguments, flags); err != nil {
		return fmt.Errorf("load the installed kernel: %w", err)
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC)
}

// inMemory is a file that is nowhere but in memory.
func inMemory(name string, data []byte) (int, error) {
	file, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for len(data) > 0 {
		n, err := unix.Write(file, data)
		if err != nil {
			_ = unix.Close(file)
			return -1, err
		}
		data = data[n:]
	}
	return file, nil
}
