// Package blockdev is the block devices of a Linux machine as disks: what /sys tells of them, and what they can do beside
// reading and writing, by the kernel's ioctls.
package blockdev

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/node"
)

// notDisks are block devices that are made of others, of memory, or of the flash chips that a board's firmware is in: a board whose
// firmware was wiped never starts again.
var notDisks = regexp.MustCompile(`^(loop|ram|zram|dm-|md|nbd|rbd|drbd|fd|bcache|mtdblock|ubiblock)[0-9]`)

// hidden are parts of a device that only look like disks of their own.
var hidden = regexp.MustCompile(`boot[0-9]+$|rpmb$`)

// Scan tells of every disk below sys/block of a file system. Nothing is opened. Where the disks can't be listed, that is an
// error: it must not look like a machine without disks.
func Scan(root fs.FS) (out []disk.Info, err error) {
	s := sysfs{root}
	entries, err := fs.ReadDir(root, "sys/block")
	if err != nil {
		return nil, fmt.Errorf("list the disks: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		at := path.Join("sys/block", name)
		if notDisks.MatchString(name) || hidden.MatchString(name) || s.text(at+"/hidden") == "1" || !s.exists(at+"/device") {
			continue
		}
		out = append(out, s.info(name, at))
	}
	return out, nil
}

func (s sysfs) info(name, at string) disk.Info {
	const sector = 512 // whatever the device's own are
	d := s.names(name, at)
	d.Bytes = s.number(at+"/size") * sector
	transport, remote := s.transport(name, at)
	return disk.Info{
		Disk:       d,
		Rotational: s.text(at+"/queue/rotational") == "1",
		ReadOnly:   s.text(at+"/ro") == "1",
		Removable:  s.removable(name, at, transport),
		Remote:     remote,
		Transport:  transport,
		// Controllers for SAS show a SATA disk as one whose vendor has this name.
		ATA:        transport == "sata" || !remote && transport != "usb" && s.text(at+"/device/vendor") == "ATA",
		BlockBytes: s.number(at + "/queue/logical_block_size"),
	}
}

// names are what a disk is known by.
func (s sysfs) names(name, at string) node.Disk {
	return node.Disk{
		Path: "/dev/" + name, Model: printable(s.first(at+"/device/model", at+"/device/name")), Serial: printable(s.serial(at)),
		WWN: printable(s.first(at+"/wwid", at+"/device/wwid")),
	}
}

// printable leaves out of a disk's name what can't be printed: some hold bytes that are no text, and come back changed from whoever
// was told of them. The disk would not be found again by its name.
func printable(name string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, name))
}

// removable tells whether a device is none of the machine's disks, or has no fixed medium. The kernel sets the flag for disks in
// bays too that can be opened while the machine runs: a disk on SATA, SAS or NVMe is the machine's all the same.
func (s sysfs) removable(name, at, transport string) bool {
	const optical = "5" // as SCSI numbers the types of devices
	switch {
	case transport == "usb", strings.HasPrefix(name, "sr"), s.text(at+"/device/type") == optical:
		return true
	case transport == "sata", transport == "sas", transport == "nvme":
		return false
	}
	return s.text(at+"/removable") == "1"
}

// sysfs is what the kernel tells in files.
type sysfs struct{ root fs.FS }

// text is a small file's, without blanks at its ends; empty where it can't be read.
func (s sysfs) text(name string) string {
	b, err := fs.ReadFile(s.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s sysfs) number(name string) int64 {
	n, err := strconv.ParseInt(s.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s sysfs) first(names ...string) string {
	for _, name := range names {
		if text := s.text(name); text != "" {
			return text
		}
	}
	return ""
}

func (s sysfs) exists(name string) bool {
	_, err := fs.Stat(s.root, name)
	return err == nil
}

func (s sysfs) list(directory string) (out []string) {
	entries, err := fs.ReadDir(s.root, directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// serial is where the drivers put it: NVMe and virtio as a text; SCSI in page 0x80, behind four bytes.
func (s sysfs) serial(at string) string {
	if text := s.first(at+"/device/serial", at+"/serial"); text != "" {
		return text
	}
	page, err := fs.ReadFile(s.root, at+"/device/vpd_pg80")
	if err != nil || len(page) < 4 {
		return ""
	}
	return strings.Trim(string(page[4:]), " \x00")
}

// ways tell by a part of a device's place among all devices how it is reached. The first that fits counts: a USB disk may
// speak SCSI, and a SCSI disk may be on a network.
var ways = []struct {
	part   *regexp.Regexp
	name   string
	remote bool
}{
	{regexp.MustCompile(`/usb[0-9]`), "usb", false},
	{regexp.MustCompile(`/session[0-9]`), "iscsi", true},
	{regexp.MustCompile(`/rport-[0-9]`), "fc", true},
	{regexp.MustCompile(`/ata[0-9]`), "sata", false},
	{regexp.MustCompile(`/end_device-[0-9]`), "sas", false},
	{regexp.MustCompile(`/virtio[0-9]`), "virtio", false},
	{regexp.MustCompile(`/mmc[0-9]`), "mmc", false},
	{regexp.MustCompile(`/host[0-9]`), "scsi", false},
}

// transport is how a disk is reached, and whether that is over a network.
func (s sysfs) transport(name, at string) (transport string, remote bool) {
	if strings.HasPrefix(name, "nvme") {
		over := s.nvmeOver(at)
		return "nvme", over != "" && over != "pcie"
	}
	if place, err := fs.ReadLink(s.root, at); err == nil {
		for _, w := range ways {
			if w.part.MatchString("/" + place) {
				return w.name, w.remote
			}
		}
	}
	if strings.HasPrefix(name, "vd") {
		return "virtio", false
	}
	return "", false
}

// nvmeOver is what an NVMe controller hangs on. With several paths the device is a subsystem, and the controllers are below.
func (s sysfs) nvmeOver(at string) string {
	if text := s.text(at + "/device/transport"); text != "" {
		return text
	}
	for _, name := range s.list(at + "/device") {
		if text := s.text(path.Join(at, "device", name, "transport")); strings.HasPrefix(name, "nvme") && text != "" {
			return text
		}
	}
	return ""
}
