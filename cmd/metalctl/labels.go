package main

import (
	"maps"
	"slices"
	"strings"
)

// labels are key=value, separated by commas, in the order of keys.
func labels(l map[string]string) string {
	parts := make([]string, 0, len(l))
	for _, k := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, k+"="+l[k])
	}
	return strings.Join(parts, ",")
}

// parseLabels reads key=value pairs.
func parseLabels(pairs []string) (map[string]string, error) {
	var l map[string]string
	for _, pair := range pairs {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, usage("--label is of the form key=value, not %q", pair)
		}
		if _, doubled := l[k]; doubled {
			return nil, usage("--label %s is given more than once", k)
		}
		if l == nil {
			l = map[string]string{}
		}
		l[k] = v
	}
	return l, nil
}
