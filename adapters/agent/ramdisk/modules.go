package ramdisk

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// modules are the kernel modules of the ramdisk: those that its devices ask for, those that are loaded in any case, and those
// that are asked for by name.
type modules struct {
	insert func(file string) error
	failed func(name string, err error)

	mu     sync.Mutex
	all    []*module // needs before those that need them
	byName map[string]*module
	known  map[string]bool // places of devices that were looked at
}

// module is one of them, as the list in the ramdisk has it.
type module struct {
	name, when, file string
	needs, aliases   []string
	tried, loaded    bool
}

// parseModules reads the list that the ramdisk was built with.
func parseModules(list string) *modules {
	m := &modules{byName: map[string]*module{}, known: map[string]bool{}}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		name := strings.ReplaceAll(strings.TrimSuffix(path.Base(words[1]), ".ko"), "-", "_")
		one := &module{name: name, when: words[0], file: words[1], aliases: words[3:]}
		if words[2] != "-" {
			one.needs = strings.Split(words[2], ",")
		}
		m.all, m.byName[name] = append(m.all, one), one
	}
	return m
}

// load loads a module by its name, and what it needs. One that the kernel has within is not in the list.
func (m *modules) load(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loadLocked(name)
}

func (m *modules) loadLocked(name string) {
	one := m.byName[name]
	if one == nil || one.tried {
		return
	}
	one.tried = true
	for _, need := range one.needs {
		m.loadLocked(need)
	}
	if err := m.insert(one.file); err != nil {
		m.failed(name, err)
		return
	}
	one.loaded = true
}

// plug loads what the devices that are new ask for, and what goes with it. It tells whether anything was loaded: a driver may
// bring further devices.
func (m *modules) plug(root fs.FS) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := devicesIn(root, m.known)
	before := m.count()
	for _, one := range m.all {
		if !one.tried && (one.when == "device" && one.drives(fresh) || one.when == "always" && m.hasGround(one)) {
			m.loadLocked(one.name)
		}
	}
	return m.count() > before
}

// hasGround tells whether a module that drives no device by itself has what it works upon: some only add to a driver.
func (m *modules) hasGround(one *module) bool {
	return !slices.ContainsFunc(one.needs, func(name string) bool {
		need := m.byName[name]
		return need != nil && len(need.aliases) > 0 && !need.loaded
	})
}

func (m *modules) count() (n int) {
	for _, one := range m.all {
		if one.loaded {
			n++
		}
	}
	return n
}

func (m *module) drives(devices []string) bool {
	for _, alias := range m.aliases {
		kind, _, _ := strings.Cut(alias, ":")
		kind = strings.TrimSuffix(kind, "*")
		for _, device := range devices {
			if !strings.HasPrefix(device, kind) {
				continue
			}
			if ok, err := path.Match(alias, device); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// devicesIn finds the devices that were not seen before, as the kernel writes what each asks for. On an emulated processor
// reading is slow, and there are hundreds: each is read once.
func devicesIn(root fs.FS, seen map[string]bool) (out []string) {
	look := func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if text := readText(root, name+"/modalias"); text != "" {
			out = append(out, text)
		}
	}
	for _, bus := range namesIn(root, "sys/bus") {
		for _, device := range namesIn(root, "sys/bus/"+bus+"/devices") {
			look("sys/bus/" + bus + "/devices/" + device)
		}
	}
	for _, device := range namesIn(root, "sys/class/input") {
		look("sys/class/input/" + device)
	}
	look("sys/devices/system/cpu")
	return out
}

func namesIn(root fs.FS, directory string) (out []string) {
	entries, err := fs.ReadDir(root, directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
