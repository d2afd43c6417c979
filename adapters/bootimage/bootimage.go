// Package bootimage makes what a machine boots from the network: the kernel of a distribution, and an initramfs with the
// agent as its first process. The same inputs give the same bytes. It needs no rights and runs nothing.
package bootimage

import (
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/better-compute/metal/domain/fault"
)

// ModuleList is where the initramfs says which modules there are.
const ModuleList = "lib/modules/list"

// Ramdisk is what an initramfs is made of.
type Ramdisk struct {
	Agent        []byte   // bcd, linked statically
	Modules      fs.FS    // with lib/modules of one kernel
	Names        []string // of the modules; what the kernel does not have is left out, what they need comes too
	Firmware     fs.FS    // with what the modules' devices are handed at their start, as /lib/firmware has it; nil: none
	Certificates []byte   // PEM: whom the agent trusts where it fetches images over HTTPS; nil: nobody
	Compress     bool     // with zstd
}

// Built says what is in an initramfs.
type Built struct {
	Release string   // of the kernel whose modules are in it
	Modules []string // what is in it, needs before those that need them
	Missing []string // names that this kernel has no module for

	Firmware   []string // what is in it
	NoFirmware []string // modules that ask for some, and none of it is there
}

// Initramfs writes the archive that the kernel unpacks.
func (r Ramdisk) Initramfs(to io.Writer) (Built, error) {
	machine, err := staticMachine(r.Agent)
	if err != nil {
		return Built{}, err
	}
	tree, err := openModules(r.Modules)
	if err != nil {
		return Built{}, err
	}
	var out Built
	for _, name := range r.Names {
		tree.wanted[strings.ReplaceAll(name, "-", "_")] = true
		switch found, err := tree.add(name); {
		case err != nil:
			return Built{}, err
		case !found:
			out.Missing = append(out.Missing, name)
		}
	}
	if err := sameMachine(machine, tree.order); err != nil {
		return Built{}, err
	}
	firmware, without, err := findFirmware(r.Firmware, tree.order)
	if err != nil {
		return Built{}, fault.Wrap(err, fault.InvalidInput, "the firmware can't be read: %v", err)
	}
	if !r.Compress {
		err = r.write(to, tree, firmware)
	} else {
		err = r.writeCompressed(to, tree, firmware)
	}
	if err != nil {
		return Built{}, fault.Wrap(err, fault.Unavailable, "the initramfs can't be written: %v", err)
	}
	out.Release, out.NoFirmware = tree.release, without
	for _, f := range firmware {
		out.Firmware = append(out.Firmware, f.name)
	}
	for _, m := range tree.order {
		out.Modules = append(out.Modules, m.name)
	}
	return out, nil
}

func (r Ramdisk) writeCompressed(to io.Writer, tree *moduleTree, firmware []firmwareFile) error {
	// One goroutine: with several, the bytes depend on how many there are.
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return err
	}
	if err := r.write(z, tree, firmware); err != nil {
		return err
	}
	return z.Close()
}

func (r Ramdisk) write(to io.Writer, tree *moduleTree, firmware []firmwareFile) error {
	a := newArchive(to)
	for _, name := range []string{"dev", "etc", "lib", "mnt", "proc", "run", "sys", "tmp"} {
		a.directory(name)
	}
	a.add(entry{name: "dev/console", mode: typeCharacter | 0o600, major: 5, minor: 1})
	a.add(entry{name: "dev/null", mode: typeCharacter | 0o666, major: 1, minor: 3})
	a.file("init", 0o755, r.Agent)
	if r.Certificates != nil {
		a.file("etc/ssl/certs/ca-certificates.crt", 0o644, r.Certificates)
	}
	for _, m := range tree.order {
		a.file(modulePath(m), 0o644, m.data)
	}
	for _, f := range firmware {
		a.file(firmwarePath(f.name), 0o644, f.data)
	}
	a.file(ModuleList, 0o644, tree.list())
	return a.close()
}

// staticMachine is the processor that a program is for. One that asks for shared libraries finds none in a ramdisk.
func staticMachine(program []byte) (elf.Machine, error) {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return 0, fault.Wrap(err, fault.InvalidInput, "the agent is not a Linux program: %v", err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return 0, fault.New(fault.InvalidInput, "the agent needs shared libraries, and a ramdisk has none").
				WithRemedy("build bcd with CGO_ENABLED=0, and name it with --agent")
		}
	}
	return file.Machine, nil
}

func sameMachine(machine elf.Machine, modules []module) error {
	for _, m := range modules {
		file, err := elf.NewFile(bytes.NewReader(m.data))
		if err != nil {
			return fault.Wrap(err, fault.InvalidInput, "%s is not a kernel module: %v", m.path, err)
		}
		if file.Machine != machine {
			return fault.New(fault.InvalidInput, "the agent is for %v and the kernel for %v", machine, file.Machine).
				WithRemedy("name a bcd that is built for the kernel's processor with --agent")
		}
	}
	return nil
}
