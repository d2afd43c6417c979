package bootimage

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// Offsets in a PE image, from the start of the COFF header and of the optional header behind it.
const (
	peAt              = 0x3c // where the file says where its header is
	coffSections      = 2
	coffOptionalBytes = 16
	coffBytes         = 20
	optionalMagic     = 0x20b // of a 64-bit image
	optionalAlignment = 32    // of sections in memory; in the file it is behind
	optionalImageSize = 56
	optionalHeaders   = 60
	optionalChecksum  = 64
	optionalLeast     = 68
	sectionBytes      = 40
	sectionReadOnly   = 0x40000040 // data that is there from the start, to be read
)

// Unified puts kernel, initramfs and the kernel's arguments into one image that UEFI firmware starts: sections behind those of
// a stub, such as systemd's linuxx64.efi.stub, which finds them by their names.
func Unified(stub, kernel, initramfs []byte, arguments string) ([]byte, error) {
	image, err := openPE(stub)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidInput, "the stub can't be used: %v", err)
	}
	for _, part := range []struct {
		name string
		data []byte
	}{{".cmdline", []byte(arguments)}, {".linux", kernel}, {".initrd", initramfs}} {
		if len(part.data) == 0 {
			continue
		}
		if err := image.add(part.name, part.data); err != nil {
			return nil, fault.Wrap(err, fault.InvalidInput, "the stub can't be used: %v", err)
		}
	}
	return image.bytes, nil
}

// peImage is an image that sections are added to.
type peImage struct {
	bytes          []byte
	coff, optional int
	table          int // of sections
}

func openPE(stub []byte) (*peImage, error) {
	le := binary.LittleEndian
	if len(stub) < peAt+4 || string(stub[:2]) != "MZ" {
		return nil, errors.New("it is no image for firmware")
	}
	p := &peImage{bytes: slices.Clone(stub), coff: int(le.Uint32(stub[peAt:])) + 4}
	p.optional = p.coff + coffBytes
	if p.coff < 4 || p.optional+optionalLeast > len(stub) || string(stub[p.coff-4:p.coff]) != "PE\x00\x00" ||
		le.Uint16(stub[p.optional:]) != optionalMagic {
		return nil, errors.New("it is no 64-bit image for firmware")
	}
	p.table = p.optional + int(le.Uint16(stub[p.coff+coffOptionalBytes:]))
	if p.sections() == 0 || p.table+p.sections()*sectionBytes > len(stub) {
		return nil, errors.New("it has no sections")
	}
	return p, nil
}

func (p *peImage) sections() int {
	return int(binary.LittleEndian.Uint16(p.bytes[p.coff+coffSections:]))
}

// add puts a section behind all others, in the file and in memory.
func (p *peImage) add(name string, data []byte) error {
	le := binary.LittleEndian
	inMemory, inFile := le.Uint32(p.bytes[p.optional+optionalAlignment:]), le.Uint32(p.bytes[p.optional+optionalAlignment+4:])
	n := p.sections()
	header := p.table + n*sectionBytes
	if header+sectionBytes > int(le.Uint32(p.bytes[p.optional+optionalHeaders:])) {
		return errors.New("there is no room for another section")
	}
	if inMemory == 0 || inFile == 0 || inMemory > 1<<20 || inFile > 1<<20 {
		return errors.New("its alignment makes no sense")
	}
	end := uint32(0)
	for i := range n {
		s := p.bytes[p.table+i*sectionBytes:]
		end = max(end, le.Uint32(s[12:])+le.Uint32(s[8:]))
	}
	address := up(end, inMemory)
	p.pad(inFile)
	at := uint32(len(p.bytes))
	p.bytes = append(p.bytes, data...)
	p.pad(inFile)

	s := p.bytes[header:][:sectionBytes]
	clear(s)
	copy(s[:8], name)
	le.PutUint32(s[8:], uint32(len(data)))
	le.PutUint32(s[12:], address)
	le.PutUint32(s[16:], uint32(len(p.bytes))-at)
	le.PutUint32(s[20:], at)
	le.PutUint32(s[36:], sectionReadOnly)
	le.PutUint16(p.bytes[p.coff+coffSections:], uint16(n+1))
	le.PutUint32(p.bytes[p.optional+optionalImageSize:], up(address+uint32(len(data)), inMemory))
	le.PutUint32(p.bytes[p.optional+optionalChecksum:], 0) // firmware does not look at it
	return nil
}

func (p *peImage) pad(to uint32) {
	p.bytes = append(p.bytes, make([]byte, up(uint32(len(p.bytes)), to)-uint32(len(p.bytes)))...)
}

func up(n, to uint32) uint32 { return (n + to - 1) / to * to }
