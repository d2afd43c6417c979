package bootimage

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Unpack takes out of a Debian package what a ramdisk is made of, the kernel and its modules, and puts it below directory.
// Nothing of the package is run, and it needs no rights.
func Unpack(name, directory string) error {
	file, err := os.Open(name)
	if err != nil {
		return fault.Wrap(err, fault.InvalidInput, "the package can't be read: %v", err)
	}
	defer file.Close() //nolint:errcheck // it was read
	if err := unpackDeb(bufio.NewReaderSize(file, 1<<20), directory); err != nil {
		return fault.Wrap(err, fault.InvalidInput, "%s: %v", name, err)
	}
	return nil
}

const arMagic = "!<arch>\n"

// unpackDeb finds the member with the files in the archive that a package is.
func unpackDeb(from io.Reader, directory string) error {
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(from, magic); err != nil || string(magic) != arMagic {
		return errors.New("it is not a Debian package")
	}
	for {
		header := make([]byte, 60)
		if _, err := io.ReadFull(from, header); err != nil {
			return errors.New("there are no files in it")
		}
		name := strings.TrimRight(string(header[:16]), " /")
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil || size < 0 {
			return errors.New("it is damaged")
		}
		if strings.HasPrefix(name, "data.tar") {
			r, err := unpacker(name, bufio.NewReaderSize(io.LimitReader(from, size), 1<<20))
			if err != nil {
				return err
			}
			defer r.Close() //nolint:errcheck // it was read
			return unpackTar(r, directory)
		}
		if _, err := io.CopyN(io.Discard, from, size+size%2); err != nil {
			return fmt.Errorf("it breaks off: %w", err)
		}
	}
}

func unpackTar(from io.Reader, directory string) error {
	files := tar.NewReader(from)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if h.Typeflag != tar.TypeReg || !wanted(name) {
			continue
		}
		if err := writeFile(filepath.Join(directory, filepath.FromSlash(name)), files); err != nil {
			return err
		}
	}
}

// wanted tells the kernel, its modules and stubs for images that firmware starts from everything else.
func wanted(name string) bool {
	base := path.Base(name)
	name = strings.TrimPrefix(name, "usr/")
	return strings.HasPrefix(name, "boot/vmlinuz") ||
		strings.HasPrefix(name, "lib/modules/") && (base == "vmlinuz" || base == "modules.builtin" || strings.HasSuffix(unpacked(base), ".ko")) ||
		strings.HasPrefix(name, "lib/systemd/boot/efi/") && strings.HasSuffix(base, ".efi.stub")
}

func writeFile(name string, from io.Reader) (err error) {
	if !filepath.IsLocal(filepath.Base(name)) {
		return errors.New("it has a file with an impossible name")
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // what is built is for everyone to read
		return err
	}
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	_, err = io.Copy(to, from)
	return err
}
