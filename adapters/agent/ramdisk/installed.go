package ramdisk

import (
	"bytes"
	"debug/pe"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// installed is an OS as it is started.
type installed struct {
	kernel, initrd []byte
	arguments      string
}

var errNoKernel = errors.New("there is no kernel on it that can be started")

// findInstalled looks for an OS on one filesystem: a kernel with everything in it that firmware starts (a unified kernel
// image), an entry as the Boot Loader Specification has it, or the first entry of GRUB.
func findInstalled(files fs.FS) (installed, error) {
	for _, find := range []func(fs.FS) (installed, error){unifiedKernel, loaderEntry, grubEntry} {
		found, err := find(files)
		if err == nil || !errors.Is(err, errNoKernel) {
			return found, err
		}
	}
	return installed{}, errNoKernel
}

// lookUp finds a path whatever its letters' case: the filesystem that firmware reads does not tell them apart.
func lookUp(files fs.FS, name string) (string, bool) {
	at := "."
	for part := range strings.SplitSeq(path.Clean(strings.TrimLeft(name, "/")), "/") {
		entries, err := fs.ReadDir(files, at)
		if err != nil {
			return "", false
		}
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == part })
		if i < 0 {
			i = slices.IndexFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), part) })
		}
		if i < 0 {
			return "", false
		}
		at = path.Join(at, entries[i].Name())
	}
	return at, true
}

// inDirectory lists the files with an ending, the last by name first: that is the newest kernel.
func inDirectory(files fs.FS, name, ending string) (out []string) {
	at, ok := lookUp(files, name)
	if !ok {
		return nil
	}
	entries, err := fs.ReadDir(files, at)
	if err != nil {
		return nil
	}
	for _, e := range slices.Backward(entries) {
		if strings.HasSuffix(strings.ToLower(e.Name()), ending) {
			out = append(out, path.Join(at, e.Name()))
		}
	}
	return out
}

func unifiedKernel(files fs.FS) (installed, error) {
	names := append(inDirectory(files, "EFI/BOOT", ".efi"), inDirectory(files, "EFI/Linux", ".efi")...)
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return installed{}, err
		}
		if found, ok := unpackUnified(data); ok {
			return found, nil
		}
	}
	return installed{}, errNoKernel
}

// unpackUnified takes the parts out of an image. One without a kernel is a boot loader.
func unpackUnified(image []byte) (out installed, ok bool) {
	file, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		return out, false
	}
	part := func(name string) []byte {
		section := file.Section(name)
		if section == nil {
			return nil
		}
		data, err := section.Data()
		if err != nil {
			return nil
		}
		return data[:min(int(section.VirtualSize), len(data))]
	}
	out = installed{part(".linux"), part(".initrd"), strings.Trim(string(part(".cmdline")), "\x00\n ")}
	return out, len(out.kernel) > 0
}

func loaderEntry(files fs.FS) (installed, error) {
	for _, directory := range []string{"loader/entries", "boot/loader/entries"} {
		for _, name := range inDirectory(files, directory, ".conf") {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return installed{}, err
			}
			found, err := load(files, entryOf(string(text), "linux", "initrd", "options"))
			if err == nil || !errors.Is(err, errNoKernel) {
				return found, err
			}
		}
	}
	return installed{}, errNoKernel
}

func grubEntry(files fs.FS) (installed, error) {
	for _, name := range []string{"boot/grub/grub.cfg", "grub/grub.cfg", "boot/grub2/grub.cfg", "grub2/grub.cfg"} {
		at, ok := lookUp(files, name)
		if !ok {
			continue
		}
		text, err := fs.ReadFile(files, at)
		if err != nil {
			return installed{}, err
		}
		_, entry, ok := strings.Cut(string(text), "\nmenuentry ")
		if !ok {
			continue
		}
		entry, _, _ = strings.Cut(entry, "\n}")
		return load(files, entryOf(entry, "linux", "initrd", ""))
	}
	return installed{}, errNoKernel
}

// entry is an OS by the names of its files.
type entry struct {
	kernel    string
	initrds   []string
	arguments []string
}

// entryOf reads lines of a word and what it is about. Without a word for the arguments they follow the kernel.
func entryOf(text, kernel, initrd, options string) (out entry) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case kernel, kernel + "efi", kernel + "16":
			if out.kernel = words[1]; options == "" {
				out.arguments = words[2:]
			}
		case initrd, initrd + "efi", initrd + "16":
			out.initrds = append(out.initrds, words[1:]...)
		case options:
			out.arguments = append(out.arguments, words[1:]...)
		}
	}
	// What stands for something in the boot loader's own memory means nothing here.
	out.arguments = slices.DeleteFunc(out.arguments, func(word string) bool { return strings.HasPrefix(word, "$") })
	return out
}

func load(files fs.FS, e entry) (out installed, err error) {
	at, ok := lookUp(files, e.kernel)
	if e.kernel == "" || !ok {
		return out, errNoKernel
	}
	if out.kernel, err = fs.ReadFile(files, at); err != nil {
		return out, err
	}
	for _, name := range e.initrds {
		at, ok := lookUp(files, name)
		if !ok {
			return out, errNoKernel
		}
		data, err := fs.ReadFile(files, at)
		if err != nil {
			return out, err
		}
		for len(out.initrd)%4 != 0 {
			out.initrd = append(out.initrd, 0)
		}
		out.initrd = append(out.initrd, data...)
	}
	out.arguments = strings.Join(e.arguments, " ")
	return out, nil
}
