package program

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Issues collects everything that is wrong with the configuration of a command, so that all of it is told at once. The zero
// value is ready for use.
type Issues struct {
	found []fault.Issue
	given map[string]string // where an option came from that no flag gave
}

// From notes where an option came from that no flag gave.
func (w *Issues) From(option, place string) {
	if w.given == nil {
		w.given = map[string]string{}
	}
	w.given[option] = place
}

// At notes what is wrong at a place.
func (w *Issues) At(place, format string, args ...any) {
	issue := fault.Issue{Path: place, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(w.found, issue) {
		w.found = append(w.found, issue)
	}
}

// Option notes what is wrong with an option, at the place that gave it.
func (w *Issues) Option(name, format string, args ...any) {
	w.At(cmp.Or(w.given[name], "--"+name), format, args...)
}

// Refused notes why an option could not be used, with the remedy where there is one. No error is nothing wrong.
func (w *Issues) Refused(name string, err error) {
	if err == nil {
		return
	}
	message := err.Error()
	var f *fault.Error
	if errors.As(err, &f) {
		if message = f.Message; f.Remedy != "" {
			message += "; " + f.Remedy
		}
	}
	w.Option(name, "%s", message)
}

// SecretFile reads what the file of an option holds, without the space around it; empty where no file is named. It notes what is
// wrong with the file.
func (w *Issues) SecretFile(option, path string) string {
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	secret := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		w.Option(option, "%v", err)
	case secret == "":
		w.Option(option, "%s is empty", path)
	}
	return secret
}

// Err is INVALID_CONFIG with every issue, ordered by place, or nil where nothing is wrong.
func (w *Issues) Err() error {
	if len(w.found) == 0 {
		return nil
	}
	slices.SortStableFunc(w.found, func(a, b fault.Issue) int { return cmp.Compare(a.Path, b.Path) })
	return &fault.Error{
		Code: fault.InvalidConfig, Message: "the configuration is not valid", Issues: w.found, Remedy: "see --help",
	}
}
