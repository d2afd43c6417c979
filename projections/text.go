package projections

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Text makes a string that PostgreSQL can keep: it refuses NUL and what is not UTF-8, which must not stop a
// projection.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Labels makes labels that PostgreSQL can keep; none is an empty map.
func Labels(labels map[string]string) map[string]string {
	kept := make(map[string]string, len(labels))
	for k, v := range labels {
		kept[Text(k)] = Text(v)
	}
	return kept
}

// JSON is v as text. A value that has no JSON is a bug: it panics, and the runner stops the projection with it.
func JSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%T has no JSON: %v", v, err))
	}
	return string(raw)
}
