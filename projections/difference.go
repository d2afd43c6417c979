package projections

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxShown bounds a value in the text of a difference, in bytes.
const maxShown = 120

// String tells the table, the row by its key, and on one line for each column that differs both values, each cut at 120
// bytes.
func (d Difference) String() string {
	live, fresh := columnsOf(d.Live), columnsOf(d.Fresh)
	row := d.Table
	for _, column := range d.Key {
		value, known := live[column]
		if !known {
			value = fresh[column]
		}
		row += " " + column + "=" + shown(value)
	}
	switch {
	case live == nil:
		return row + ": the row is missing; the log says " + shown(d.Fresh)
	case fresh == nil:
		return row + ": the log knows no such row; it is " + shown(d.Live)
	}
	all := maps.Clone(live)
	maps.Copy(all, fresh)
	var lines []string
	for _, column := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(live[column], fresh[column]) {
			lines = append(lines, fmt.Sprintf("%s: %s is %s, the log says %s", row, column, shown(live[column]), shown(fresh[column])))
		}
	}
	if len(lines) == 0 {
		return row + ": the row is there another number of times than the log says"
	}
	return strings.Join(lines, "\n")
}

// columnsOf takes a row of to_json apart; nil for a row that is not there.
func columnsOf(row json.RawMessage) map[string]json.RawMessage {
	var columns map[string]json.RawMessage
	if json.Unmarshal(row, &columns) != nil {
		return nil
	}
	return columns
}

func shown(value json.RawMessage) string {
	if len(value) <= maxShown {
		return string(value)
	}
	cut := value[:maxShown]
	for len(cut) > 0 && !utf8.Valid(cut) { // not within a character
		cut = cut[:len(cut)-1]
	}
	return string(cut) + "…"
}
