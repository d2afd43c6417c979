package bootimage

import (
	"fmt"
	"io"
	"io/fs"
)

// archive writes a cpio archive in the format "newc", which the kernel unpacks at its start. The same entries give the same
// bytes: there are no times in it, and inode numbers count from one.
type archive struct {
	to    io.Writer
	err   error
	at    int64
	inode int
	made  map[string]bool
}

// entry is one name of an archive.
type entry struct {
	name         string
	mode         uint32 // type and permissions, as the kernel has them
	major, minor int    // of a device
	data         []byte
}

// The types of files, as the kernel numbers them.
const (
	typeDirectory = 0o040000
	typeFile      = 0o100000
	typeCharacter = 0o020000
)

func newArchive(to io.Writer) *archive { return &archive{to: to, made: map[string]bool{}} }

// directory makes a directory and those above it, each once.
func (a *archive) directory(name string) {
	if name == "." || name == "" || a.made[name] {
		return
	}
	a.directory(parent(name))
	a.made[name] = true
	a.add(entry{name: name, mode: typeDirectory | 0o755})
}

func parent(name string) string {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return ""
}

func (a *archive) file(name string, mode fs.FileMode, data []byte) {
	a.directory(parent(name))
	a.add(entry{name: name, mode: typeFile | uint32(mode.Perm()), data: data})
}

func (a *archive) add(e entry) {
	a.inode++
	links := 1
	if e.mode&typeDirectory != 0 {
		links = 2
	}
	a.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, e.mode, 0, 0, links, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0))
	a.write(append([]byte(e.name), 0))
	a.pad()
	a.write(e.data)
	a.pad()
}

// close ends the archive.
func (a *archive) close() error {
	a.inode = -1
	a.add(entry{name: "TRAILER!!!"})
	return a.err
}

func (a *archive) pad() {
	if odd := a.at % 4; odd != 0 {
		a.write(make([]byte, 4-odd))
	}
}

func (a *archive) write(b []byte) {
	if a.err != nil {
		return
	}
	n, err := a.to.Write(b)
	a.at, a.err = a.at+int64(n), err
}
