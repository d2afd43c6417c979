package disk

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/better-compute/metal/adapters/iso9660"
	"github.com/better-compute/metal/domain/fault"
)

// Layout of a disk with a config drive: the last 4 MiB, begun at a whole MiB, are kept. The first 3 MiB of them are the
// drive's, an ISO 9660 filesystem; the last MiB stays free for the backup of the partition table. An image with a partition
// table gets a partition over the drive, so that the OS finds it as a block device; without one the drive is there all the
// same, and ReadConfigDrive finds it.
const (
	configReserve = 4 << 20
	configBytes   = 3 << 20
)

// configOffset is where the config drive of a disk of size bytes begins.
func configOffset(size int64) int64 { return (size - configReserve) / head * head }

// The kinds of user data.
const (
	KindNoCloud  = "cloud-init" // user-data and meta-data, label cidata
	KindIgnition = "ignition"   // config.ign, label ignition
)

// Config is what the OS finds at its first boot.
type Config struct {
	Kind     string // KindNoCloud where it is empty
	UserData []byte
	Hostname string
	Instance string // changes with every deployment: cloud-init does its work anew
}

// drive makes the filesystem.
func (c *Config) drive() ([]byte, error) {
	type file struct {
		name string
		data []byte
	}
	meta := fmt.Sprintf("instance-id: %q\n", c.Instance)
	if c.Hostname != "" {
		meta += fmt.Sprintf("local-hostname: %q\n", c.Hostname)
	}
	label, files := "cidata", []file{{"user-data", c.UserData}, {"meta-data", []byte(meta)}}
	if c.Kind == KindIgnition {
		label, files = "ignition", []file{{"config.ign", c.UserData}}
	}
	volume := iso9660.Volume{Label: label}
	var content []byte
	for _, f := range files {
		volume.Files = append(volume.Files, iso9660.File{Name: f.name, Size: len(f.data)})
		content = append(content, f.data...)
		content = append(content, make([]byte, -len(f.data)&(iso9660.Block-1))...)
	}
	head, err := volume.Head()
	return append(head, content...), err
}

// writeConfig puts the drive in its place, and a partition over it into the table that is about to be written.
func (w *writing) writeConfig(ctx context.Context) error {
	drive, err := w.image.Config.drive()
	if err != nil {
		return err
	}
	if len(drive) > configBytes {
		return fault.New(fault.InvalidInput, "the user data has %d bytes; the config drive holds %d", len(w.image.Config.UserData), configBytes)
	}
	at := configOffset(w.size)
	if err := zero(ctx, w.device, at, w.size-at, nil); err != nil {
		return w.failed(err, "write at %d", at)
	}
	if err := w.place(drive, at); err != nil {
		return err
	}
	first, tail := withPartition(w.first, w.size, span{at, configBytes})
	if first == nil {
		return nil
	}
	w.first = first
	return w.place(tail, w.size-int64(len(tail)))
}

// ReadConfigDrive gives the files of a disk's config drive, by name. A disk without one is NOT_FOUND.
func ReadConfigDrive(d Device) (map[string][]byte, error) {
	size := d.Info().Bytes
	if size < 2*head+configReserve {
		return nil, fault.New(fault.NotFound, "the disk is too small for a config drive")
	}
	label, files, err := iso9660.Read(io.NewSectionReader(d, configOffset(size), configBytes), configBytes)
	if err != nil || (!strings.EqualFold(label, "cidata") && label != "ignition") {
		return nil, fault.New(fault.NotFound, "the disk has no config drive")
	}
	return files, nil
}
