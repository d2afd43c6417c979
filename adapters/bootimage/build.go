package bootimage

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// The files that Build writes.
const (
	KernelFile    = "vmlinuz"
	InitramfsFile = "initramfs"
	UnifiedFile   = "ramdisk.efi"
	MediumFile    = "ramdisk.iso"
)

// Source says where kernel and modules come from: packages, or a kernel and a directory of modules.
type Source struct {
	Packages []string // Debian packages: of the kernel, and of its modules where they are apart
	Kernel   string   // file
	Modules  string   // directory with the modules of the kernel
}

// Firmware says how an image is made that UEFI firmware starts by itself.
type Firmware struct {
	Stub      string // file, such as linuxx64.efi.stub; empty: no image is made
	Arguments string // of the kernel
	Medium    bool   // make one for virtual drives too
}

// File is one file that was written.
type File struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Build writes kernel and initramfs into the directory out, which it makes, and images of both where there is a stub for them.
// The Modules of r are the source's.
func Build(from Source, r Ramdisk, firmware Firmware, out string) (files []File, built Built, err error) {
	if len(from.Packages) > 0 {
		directory, err := os.MkdirTemp("", "ramdisk-")
		if err != nil {
			return nil, built, fault.Wrap(err, fault.Unavailable, "there is no room to unpack: %v", err)
		}
		defer func() { _ = os.RemoveAll(directory) }()
		if from, err = from.unpack(directory); err != nil {
			return nil, built, err
		}
	}
	r.Modules = os.DirFS(from.Modules)
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // what machines boot is no secret
		return nil, built, fault.Wrap(err, fault.InvalidInput, "the output can't be written: %v", err)
	}
	initramfs, err := put(filepath.Join(out, InitramfsFile), func(w io.Writer) error {
		built, err = r.Initramfs(w)
		return err
	})
	if err != nil {
		return nil, built, err
	}
	kernel, err := put(filepath.Join(out, KernelFile), func(w io.Writer) error { return copyFile(w, from.Kernel) })
	if err != nil {
		return nil, built, err
	}
	if files = []File{kernel, initramfs}; firmware.Stub == "" {
		return files, built, nil
	}
	images, err := firmware.images(kernel.Path, initramfs.Path, out)
	return append(files, images...), built, err
}

// unpack puts all packages into one directory, and finds the kernel there.
func (s Source) unpack(directory string) (Source, error) {
	for _, name := range s.Packages {
		if err := Unpack(name, directory); err != nil {
			return s, err
		}
	}
	out := Source{Kernel: s.Kernel, Modules: directory}
	if out.Kernel != "" {
		return out, nil
	}
	var found []string
	for _, pattern := range []string{"boot/vmlinuz*", "lib/modules/*/vmlinuz", "usr/lib/modules/*/vmlinuz"} {
		names, err := filepath.Glob(filepath.Join(directory, pattern))
		if err != nil {
			return s, fault.Wrap(err, fault.Internal, "the kernel can't be looked for")
		}
		found = append(found, names...)
	}
	switch slices.Sort(found); len(found) {
	case 0:
		return s, fault.New(fault.InvalidInput, "there is no kernel in the package").
			WithRemedy("a metapackage only names the package with the kernel: name that one")
	case 1:
		out.Kernel = found[0]
		return out, nil
	}
	return s, fault.New(fault.InvalidInput, "there are %d kernels in the packages", len(found)).WithRemedy("name the packages of one kernel")
}

// put writes a file under another name and moves it into place, so that nobody boots half of one.
func put(name string, write func(io.Writer) error) (out File, err error) {
	to, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return out, fault.Wrap(err, fault.InvalidInput, "the output can't be written: %v", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(to.Name())
		}
	}()
	sum := sha256.New()
	buffered := bufio.NewWriterSize(to, 1<<20)
	err = write(io.MultiWriter(buffered, sum))
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return out, errors.Join(err, to.Close())
	}
	info, err := to.Stat()
	if err != nil {
		return out, errors.Join(err, to.Close())
	}
	// A web server under another account has to read it.
	if err = errors.Join(to.Chmod(0o644), to.Sync(), to.Close()); err != nil {
		return out, err
	}
	if err = os.Rename(to.Name(), name); err != nil {
		return out, err
	}
	return File{Path: name, Bytes: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

func copyFile(to io.Writer, name string) error {
	from, err := os.Open(name)
	if err != nil {
		return fault.Wrap(err, fault.InvalidInput, "the kernel can't be read: %v", err)
	}
	defer from.Close() //nolint:errcheck // it was read
	_, err = io.Copy(to, from)
	return err
}

// images writes what firmware starts by itself.
func (f Firmware) images(kernel, initramfs, out string) (files []File, err error) {
	var parts [3][]byte
	for i, name := range []string{f.Stub, kernel, initramfs} {
		if parts[i], err = os.ReadFile(name); err != nil {
			return nil, fault.Wrap(err, fault.InvalidInput, "a part of the image can't be read: %v", err)
		}
	}
	file, err := put(filepath.Join(out, UnifiedFile), func(w io.Writer) error {
		image, err := Unified(parts[0], parts[1], parts[2], f.Arguments)
		if err != nil {
			return err
		}
		_, err = w.Write(image)
		return err
	})
	if err != nil || !f.Medium {
		return []File{file}, err
	}
	medium, err := put(filepath.Join(out, MediumFile), func(w io.Writer) error {
		return Medium(w, parts[0], parts[1], parts[2], f.Arguments)
	})
	return []File{file, medium}, err
}
