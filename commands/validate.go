package commands

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/label"
)

// The bounds of what people name.
const (
	maxName   = 100
	maxLabels = 64
)

// issues gathers everything that is wrong with an input, so that a caller hears it all at once.
type issues []fault.Issue

func (i *issues) add(path, format string, args ...any) {
	*i = append(*i, fault.Issue{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (i issues) err() error {
	if len(i) == 0 {
		return nil
	}
	return fault.Invalid(i...)
}

func (i *issues) name(path, name string) {
	switch {
	case strings.TrimSpace(name) != name || name == "":
		i.add(path, "a name without spaces around it")
	case utf8.RuneCountInString(name) > maxName:
		i.add(path, "at most %d characters", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		i.add(path, "no control characters")
	}
}

// labels are keys and values as in label expressions.
func (i *issues) labels(path string, labels map[string]string) {
	if len(labels) > maxLabels {
		i.add(path, "at most %d labels", maxLabels)
	}
	keys := make([]string, 0, len(labels))
	for k := range labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k == "" || !label.IsText(k) {
			i.add(path, "key %q: 1 to %d of letters, digits and -_./", cutKey(k), label.MaxText)
		}
		if !label.IsText(labels[k]) {
			i.add(path+"."+cutKey(k), "at most %d of letters, digits and -_./", label.MaxText)
		}
	}
}

func cutKey(k string) string {
	if len(k) <= label.MaxText {
		return k
	}
	return k[:label.MaxText] + "…"
}
