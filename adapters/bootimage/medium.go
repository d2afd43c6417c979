package bootimage

import (
	"bytes"
	"debug/pe"
	"fmt"
	"io"
	"strings"

	"github.com/better-compute/metal/adapters/iso9660"
	"github.com/better-compute/metal/domain/fault"
)

// An image for a virtual drive is the same for every machine but for a place in the kernel's command line, which whoever hands
// it out fills in. Blanks are there until then, and a note at the image's very beginning says where.
const (
	// MediumPlace is how long that place is.
	MediumPlace = 1536
	// mostArguments is what kernels read of a command line, without the zero at its end.
	mostArguments = 2047
)

// Medium writes an image that UEFI firmware boots from a virtual drive: ISO 9660 with the boot catalog of El Torito, and in it
// kernel and initramfs as Unified joins them. arguments are the kernel's on every machine.
func Medium(to io.Writer, stub, kernel, initramfs []byte, arguments string) error {
	if most := mostArguments - MediumPlace - 1; len(arguments) > most {
		return fault.New(fault.InvalidInput, "the kernel's arguments have %d bytes; what a machine is told besides leaves room for %d",
			len(arguments), most)
	}
	program, err := Unified(stub, kernel, initramfs, arguments+strings.Repeat(" ", MediumPlace+1))
	if err != nil {
		return err
	}
	file, err := pe.NewFile(bytes.NewReader(program))
	if err != nil {
		return fault.Wrap(err, fault.InvalidInput, "the stub can't be used: %v", err)
	}
	name, ok := map[uint16]string{
		pe.IMAGE_FILE_MACHINE_AMD64: "BOOTX64 EFI", pe.IMAGE_FILE_MACHINE_ARM64: "BOOTAA64EFI",
	}[file.Machine]
	if !ok {
		return fault.New(fault.InvalidInput, "the stub is for a processor that is not known: %#x", file.Machine)
	}
	boot, err := newFAT(name, len(program))
	if err != nil {
		return err
	}
	head, err := iso9660.Volume{Label: "RAMDISK", Files: []iso9660.File{{Name: "efi.img", Size: boot.size}}, Boot: true}.Head()
	if err != nil {
		return err
	}
	place := len(head) + len(boot.head) + int(file.Section(".cmdline").Offset) + len(arguments) + 1
	copy(head, fmt.Sprintf("metal-medium 1 %d %d\n", place, MediumPlace))
	for _, part := range [][]byte{head, boot.head, program, make([]byte, boot.size-len(boot.head)-len(program))} {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}
