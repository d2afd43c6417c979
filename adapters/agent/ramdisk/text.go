package ramdisk

import (
	"bytes"
	"io/fs"
	"strconv"
	"strings"
)

// readText is a small file's text, without blanks at its ends; empty where it can't be read.
func readText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// kibOf is the bytes that a line of /proc/meminfo tells of.
func kibOf(text, key string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
