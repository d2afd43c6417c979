package osimage

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	sectionHeader   = 40
	sectionReadable = 0x40000040 // initialised data that can be read
)

// UKI puts a kernel, its command line and its initramfs into the stub that UEFI firmware starts.
func UKI(stub, kernel, initrd []byte, commandLine string) ([]byte, error) {
	file, err := pe.NewFile(bytes.NewReader(stub))
	if err != nil {
		return nil, fmt.Errorf("the stub: %w", err)
	}
	header, ok := file.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return nil, errors.New("the stub is not for a processor with 64 bits")
	}
	at := int(binary.LittleEndian.Uint32(stub[0x3c:])) + 4 // of the COFF header
	optional := at + 20
	table := optional + int(file.SizeOfOptionalHeader) + len(file.Sections)*sectionHeader
	var end uint32
	for _, s := range file.Sections {
		end = max(end, s.VirtualAddress+s.VirtualSize)
	}
	out := bytes.Clone(stub)
	added := []struct {
		name string
		data []byte
	}{
		{".osrel", []byte("ID=labos\nNAME=labos\nVERSION_ID=1\n")}, {".cmdline", []byte(commandLine)},
		{".linux", kernel}, {".initrd", initrd},
	}
	if table+len(added)*sectionHeader > int(header.SizeOfHeaders) {
		return nil, errors.New("the stub has no room for further sections")
	}
	for i, s := range added {
		out = pad(out, int(header.FileAlignment))
		end = up(end, header.SectionAlignment)
		h := out[table+i*sectionHeader:][:sectionHeader]
		clear(h)
		copy(h, s.name)
		binary.LittleEndian.PutUint32(h[8:], uint32(len(s.data)))
		binary.LittleEndian.PutUint32(h[12:], end)
		binary.LittleEndian.PutUint32(h[16:], up(uint32(len(s.data)), header.FileAlignment))
		binary.LittleEndian.PutUint32(h[20:], uint32(len(out)))
		binary.LittleEndian.PutUint32(h[36:], sectionReadable)
		end += uint32(len(s.data))
		out = append(out, s.data...)
	}
	out = pad(out, int(header.FileAlignment))
	binary.LittleEndian.PutUint16(out[at+2:], uint16(len(file.Sections)+len(added)))
	binary.LittleEndian.PutUint32(out[optional+56:], up(end, header.SectionAlignment)) // SizeOfImage
	return out, nil
}

func up(n, step uint32) uint32 { return (n + step - 1) / step * step }

func pad(b []byte, step int) []byte { return append(b, make([]byte, (step-len(b)%step)%step)...) }
