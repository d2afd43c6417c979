package iso9660

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// ErrNone says that there is no filesystem, or none that Head laid out.
var ErrNone = errors.New("there is no ISO 9660 filesystem that can be read")

// Read gives the label and the files of a filesystem's root directory, of at most limit bytes in all. It is meant for what
// Head laid out, and gives ErrNone, never a panic, for anything else.
func Read(in io.ReaderAt, limit int) (label string, files map[string][]byte, err error) {
	d := make([]byte, Block)
	if _, err := in.ReadAt(d, primary*Block); err != nil || string(d[:7]) != "\x01CD001\x01" {
		return "", nil, ErrNone
	}
	at, length := int(binary.LittleEndian.Uint32(d[158:])), int(binary.LittleEndian.Uint32(d[166:]))
	if length > limit {
		return "", nil, ErrNone
	}
	directory := make([]byte, length)
	if _, err := in.ReadAt(directory, int64(at)*Block); err != nil {
		return "", nil, ErrNone
	}
	files = map[string][]byte{}
	for len(directory) > 34 && directory[0] > 33 && int(directory[0]) <= len(directory) {
		r := directory[:directory[0]]
		directory = directory[directory[0]:]
		if limit, err = readFile(in, r, files, limit); err != nil {
			return "", nil, err
		}
	}
	return strings.TrimRight(string(d[40:72]), " "), files, nil
}

// readFile reads one file, and says how many bytes may still be read.
func readFile(in io.ReaderAt, r []byte, files map[string][]byte, limit int) (int, error) {
	at, length := int(binary.LittleEndian.Uint32(r[2:])), int(binary.LittleEndian.Uint32(r[10:]))
	nameEnd := 33 + int(r[32])
	if r[25]&folder != 0 {
		return limit, nil
	}
	if length > limit || nameEnd > len(r) {
		return 0, ErrNone
	}
	data := make([]byte, length)
	if _, err := in.ReadAt(data, int64(at)*Block); err != nil && length > 0 {
		return 0, ErrNone
	}
	name := strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(string(r[33:nameEnd]), ";1")), ".")
	for fields := r[min(nameEnd+nameEnd%2, len(r)):]; len(fields) > 4 && fields[2] > 4 && int(fields[2]) <= len(fields); {
		if string(fields[:2]) == "NM" {
			name = string(fields[5:fields[2]])
		}
		fields = fields[fields[2]:]
	}
	files[name] = data
	return limit - length, nil
}
