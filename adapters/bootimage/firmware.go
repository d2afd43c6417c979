package bootimage

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// firmwareFile is one that the kernel hands to a device for a module.
type firmwareFile struct {
	name string // below lib/firmware
	data []byte
}

// findFirmware looks for what modules ask for. Of what it is told under several names, and for several generations of a device,
// distributions have a part: missing are the modules of whose none is there.
func findFirmware(files fs.FS, modules []module) (found []firmwareFile, missing []string, err error) {
	seen := map[string]bool{}
	for _, m := range modules {
		there := len(m.firmware) == 0
		for _, pattern := range m.firmware {
			for _, name := range firmwareNames(files, pattern) {
				there = true
				if seen[unpacked(name)] {
					continue
				}
				seen[unpacked(name)] = true
				data, err := readUnpacked(files, name)
				if err != nil {
					return nil, nil, err
				}
				found = append(found, firmwareFile{unpacked(name), data})
			}
		}
		if !there {
			missing = append(missing, m.name)
		}
	}
	slices.SortFunc(found, func(a, b firmwareFile) int { return strings.Compare(a.name, b.name) })
	return found, missing, nil
}

// firmwareNames are the files of one name, which may have stars, as distributions pack them.
func firmwareNames(files fs.FS, pattern string) []string {
	if files == nil || !fs.ValidPath(pattern) {
		return nil
	}
	for _, ending := range []string{"", ".zst", ".xz"} {
		names, err := fs.Glob(files, pattern+ending)
		if err != nil {
			return nil
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			info, err := fs.Stat(files, name)
			return err != nil || !info.Mode().IsRegular()
		})
		if len(names) > 0 {
			return names
		}
	}
	return nil
}

func firmwarePath(name string) string { return path.Join("lib/firmware", name) }
