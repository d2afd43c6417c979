package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
)

// A config drive is an ISO 9660 filesystem with one directory of a few small files. Their names are kept by Rock Ridge, so
// that a reader finds user-data and not USER_DAT.

const (
	isoBlock     = 2048
	isoPVD       = 16 // where ECMA-119 has the primary volume descriptor
	isoEnd       = 17
	isoPathLSB   = 18
	isoPathMSB   = 19
	isoRoot      = 20
	isoFiles     = 21
	isoDirectory = 2
)

// isoImage writes a filesystem with a label and files.
func isoImage(label string, files map[string][]byte) ([]byte, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(isoName(a), isoName(b)) })

	root := append(isoRecord("\x00", isoRoot, isoBlock, isoDirectory, append(isoSP(), isoER()...)),
		isoRecord("\x01", isoRoot, isoBlock, isoDirectory, nil)...)
	var content []byte
	for _, name := range names {
		data := files[name]
		if len(name) > 64 || strings.ContainsAny(name, "/\x00") {
			return nil, errors.New("a file of the config drive has no good name")
		}
		record := isoRecord(isoName(name), isoFiles+len(content)/isoBlock, len(data), 0, append(isoPX(0o100444), isoNM(name)...))
		root = append(root, record...)
		content = append(content, data...)
		content = append(content, make([]byte, pad(len(data), isoBlock))...)
	}
	if len(root) > isoBlock {
		return nil, errors.New("the config drive has too many files")
	}
	out := make([]byte, isoFiles*isoBlock, isoFiles*isoBlock+len(content))
	copy(out[isoPVD*isoBlock:], isoDescriptor(label, isoFiles+len(content)/isoBlock))
	copy(out[isoEnd*isoBlock:], "\xffCD001\x01")
	copy(out[isoPathLSB*isoBlock:], []byte{1, 0, isoRoot, 0, 0, 0, 1, 0, 0, 0})
	copy(out[isoPathMSB*isoBlock:], []byte{1, 0, 0, 0, 0, isoRoot, 0, 1, 0, 0})
	copy(out[isoRoot*isoBlock:], root)
	return append(out, content...), nil
}

// isoName is the name for readers that know no Rock Ridge.
func isoName(name string) string {
	name = strings.ToUpper(name)
	if !strings.Contains(name, ".") {
		name += "."
	}
	return name + ";1"
}

func pad(n, to int) int { return (to - n%to) % to }

func isoDescriptor(label string, blocks int) []byte {
	d := make([]byte, isoBlock)
	copy(d, "\x01CD001\x01")
	for i := 8; i < 72; i++ {
		d[i] = ' '
	}
	copy(d[40:72], label)
	both32(d[80:], blocks)
	both16(d[120:], 1) // one volume, which is the first
	both16(d[124:], 1)
	both16(d[128:], isoBlock)
	both32(d[132:], 10) // bytes of the path table
	binary.LittleEndian.PutUint32(d[140:], isoPathLSB)
	binary.BigEndian.PutUint32(d[148:], isoPathMSB)
	copy(d[156:], isoRecord("\x00", isoRoot, isoBlock, isoDirectory, nil))
	for i := 190; i < 813; i++ {
		d[i] = ' '
	}
	for _, at := range []int{813, 830, 847, 864} { // no time is told: the same input gives the same image
		copy(d[at:], "0000000000000000\x00")
	}
	d[881] = 1
	return d
}

// isoRecord is one entry of a directory, with its Rock Ridge fields.
func isoRecord(name string, at, length int, flags byte, fields []byte) []byte {
	r := make([]byte, 33, 128)
	both32(r[2:], at)
	both32(r[10:], length)
	copy(r[18:], []byte{70, 1, 1, 0, 0, 0, 0}) // 1970-01-01
	r[25] = flags
	both16(r[28:], 1)
	r[32] = byte(len(name))
	r = append(r, name...)
	r = append(r, make([]byte, pad(len(r), 2))...)
	r = append(r, fields...)
	r = append(r, make([]byte, pad(len(r), 2))...)
	r[0] = byte(len(r))
	return r
}

// The fields of SUSP and Rock Ridge that are needed: that they are used, mode, and name.
func isoSP() []byte { return []byte{'S', 'P', 7, 1, 0xbe, 0xef, 0} }

func isoER() []byte { return append([]byte{'E', 'R', 18, 1, 10, 0, 0, 1}, "RRIP_1991A"...) }

func isoPX(mode int) []byte {
	f := append([]byte{'P', 'X', 36, 1}, make([]byte, 32)...)
	both32(f[4:], mode)
	both32(f[12:], 1)
	return f
}

func isoNM(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...)
}

func both32(p []byte, n int) {
	binary.LittleEndian.PutUint32(p, uint32(n))
	binary.BigEndian.PutUint32(p[4:], uint32(n))
}

func both16(p []byte, n int) {
	binary.LittleEndian.PutUint16(p, uint16(n))
	binary.BigEndian.PutUint16(p[2:], uint16(n))
}

var errNotISO = errors.New("there is no ISO 9660 filesystem of a config drive")

// isoRead reads the label and the files of a filesystem's root directory. It is meant for what isoImage writes, and gives an
// error, never a panic, for anything else.
func isoRead(in io.ReaderAt, limit int) (label string, files map[string][]byte, err error) {
	d := make([]byte, isoBlock)
	if _, err := in.ReadAt(d, isoPVD*isoBlock); err != nil || string(d[:7]) != "\x01CD001\x01" {
		return "", nil, errNotISO
	}
	at, length := int(binary.LittleEndian.Uint32(d[158:])), int(binary.LittleEndian.Uint32(d[166:]))
	if length > limit {
		return "", nil, errNotISO
	}
	root := make([]byte, length)
	if _, err := in.ReadAt(root, int64(at)*isoBlock); err != nil {
		return "", nil, errNotISO
	}
	files = map[string][]byte{}
	for len(root) > 34 && root[0] > 33 && int(root[0]) <= len(root) {
		record := root[:root[0]]
		root = root[root[0]:]
		if limit, err = isoFile(in, record, files, limit); err != nil {
			return "", nil, err
		}
	}
	return strings.TrimRight(string(d[40:72]), " "), files, nil
}

// isoFile reads one file, and says how many bytes may still be read.
func isoFile(in io.ReaderAt, record []byte, files map[string][]byte, limit int) (int, error) {
	at, length := int(binary.LittleEndian.Uint32(record[2:])), int(binary.LittleEndian.Uint32(record[10:]))
	nameEnd := 33 + int(record[32])
	if record[25]&isoDirectory != 0 {
		return limit, nil
	}
	if length > limit || nameEnd > len(record) {
		return 0, errNotISO
	}
	data := make([]byte, length)
	if _, err := in.ReadAt(data, int64(at)*isoBlock); err != nil && length > 0 {
		return 0, errNotISO
	}
	name := strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(string(record[33:nameEnd]), ";1")), ".")
	for fields := record[min(nameEnd+pad(nameEnd, 2), len(record)):]; len(fields) > 4 && fields[2] > 4 && int(fields[2]) <= len(fields); {
		if string(fields[:2]) == "NM" {
			name = string(fields[5:fields[2]])
		}
		fields = fields[fields[2]:]
	}
	files[name] = data
	return limit - length, nil
}
