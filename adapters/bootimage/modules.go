package bootimage

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// module is one kernel module, not packed.
type module struct {
	name  string // as the kernel has it: with underscores
	path  string // in the tree of modules, without what it was packed with
	data  []byte
	needs []string // names of what has to be loaded before it
	// aliases are the devices that it drives, as patterns.
	aliases    []string
	firmware   []string // names of what its devices are handed at their start
	filesystem bool     // it is loaded to mount something
}

// moduleTree is the modules of one kernel.
type moduleTree struct {
	files   fs.FS
	release string
	paths   map[string]string // by name
	builtin map[string]bool

	done   map[string]bool
	wanted map[string]bool // what was asked for, not what that needs
	order  []module
}

// openModules finds the modules below root: a directory lib/modules/RELEASE of a package, or the directory of a release.
func openModules(root fs.FS) (*moduleTree, error) {
	t := &moduleTree{files: root, paths: map[string]string{}, builtin: map[string]bool{}, done: map[string]bool{}, wanted: map[string]bool{}}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if path.Base(name) == "modules.builtin" {
			return t.readBuiltin(name)
		}
		if base := unpacked(path.Base(name)); strings.HasSuffix(base, ".ko") {
			t.paths[moduleName(base)] = name
		}
		return nil
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidInput, "the modules can't be read: %v", err)
	}
	if len(t.paths) == 0 {
		return nil, fault.New(fault.InvalidInput, "there is no kernel module").
			WithRemedy("name the package with the modules too, or the directory lib/modules/RELEASE")
	}
	return t, nil
}

func (t *moduleTree) readBuiltin(name string) error {
	text, err := fs.ReadFile(t.files, name)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		t.builtin[moduleName(path.Base(strings.TrimSpace(line)))] = true
	}
	return nil
}

// moduleName is what the kernel calls the module of a file.
func moduleName(base string) string {
	return strings.ReplaceAll(strings.TrimSuffix(unpacked(base), ".ko"), "-", "_")
}

// add puts a module behind everything that it needs. It tells whether the kernel has it at all.
func (t *moduleTree) add(name string) (bool, error) {
	name = strings.ReplaceAll(name, "-", "_")
	if t.done[name] || t.builtin[name] {
		return true, nil
	}
	at, ok := t.paths[name]
	if !ok {
		return false, nil
	}
	t.done[name] = true // before its needs: two modules that ask for each other do not go round for ever
	m, err := t.read(name, at)
	if err != nil {
		return false, err
	}
	for _, need := range m.needs {
		if _, err := t.add(need); err != nil {
			return false, err
		}
	}
	t.order = append(t.order, m)
	return true, nil
}

func (t *moduleTree) read(name, at string) (module, error) {
	data, err := readUnpacked(t.files, at)
	if err != nil {
		return module{}, fault.Wrap(err, fault.InvalidInput, "the module %s can't be read: %v", at, err)
	}
	m := module{name: name, path: inTree(unpacked(at)), data: data}
	release, err := m.readInfo()
	if err != nil {
		return module{}, fault.Wrap(err, fault.InvalidInput, "%s is not a kernel module: %v", at, err)
	}
	switch {
	case t.release == "":
		t.release = release
	case t.release != release:
		return module{}, fault.New(fault.InvalidInput, "the modules are of two kernels: %s and %s", t.release, release)
	}
	return m, nil
}

// inTree takes off what precedes the kernel's own directories.
func inTree(name string) string {
	for _, root := range []string{"kernel/", "updates/", "extra/"} {
		if i := strings.Index("/"+name, "/"+root); i >= 0 {
			return name[i:]
		}
	}
	return name
}

// readInfo reads what a module tells of itself: what it needs, also what it only wants to find loaded, what it drives, and
// which kernel it is of.
func (m *module) readInfo() (release string, err error) {
	file, err := elf.NewFile(bytes.NewReader(m.data))
	if err != nil {
		return "", err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return "", errors.New("it has no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return "", fmt.Errorf("section .modinfo: %w", err)
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "depends":
			m.needs = append(m.needs, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "softdep":
			m.needs = append(m.needs, before(value)...)
		case "alias":
			m.filesystem = m.filesystem || strings.HasPrefix(value, "fs-")
			if strings.Contains(value, ":") && !strings.ContainsAny(value, " \n") {
				m.aliases = append(m.aliases, value)
			}
		case "firmware":
			m.firmware = append(m.firmware, value)
		case "vermagic":
			release, _, _ = strings.Cut(value, " ")
		}
	}
	return release, nil
}

// before is what a line "pre: a b post: c" wants first.
func before(softdep string) (out []string) {
	words := strings.Fields(softdep)
	if i := slices.Index(words, "pre:"); i >= 0 {
		for _, word := range words[i+1:] {
			if strings.HasSuffix(word, ":") {
				break
			}
			out = append(out, word)
		}
	}
	return out
}

// list says of each module when it is loaded, where it is, what has to be loaded before it and which devices it drives; one a
// line, needs before those that need them. The agent of the ramdisk reads it.
func (t *moduleTree) list() []byte {
	var out strings.Builder
	for _, m := range t.order {
		var needs []string
		for _, need := range m.needs {
			if need = strings.ReplaceAll(need, "-", "_"); t.done[need] {
				needs = append(needs, need)
			}
		}
		when := "asked" // by its name, or by what needs it
		switch {
		case !t.wanted[m.name] || m.filesystem:
		case len(m.aliases) > 0:
			when = "device"
		default:
			when = "always"
		}
		line := append([]string{when, "/" + modulePath(m), cmp.Or(strings.Join(needs, ","), "-")}, m.aliases...)
		out.WriteString(strings.Join(line, " ") + "\n")
	}
	return []byte(out.String())
}

func modulePath(m module) string { return path.Join("lib/modules", m.path) }
