package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// issues collects everything that is wrong with the configuration of a command, so that all of it is told at once.
type issues struct {
	found []fault.Issue
	given map[string]string // where an option came from that no flag gave
}

// at notes what is wrong at a place.
func (w *issues) at(place, format string, args ...any) {
	issue := fault.Issue{Path: place, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(w.found, issue) {
		w.found = append(w.found, issue)
	}
}

// option notes what is wrong with an option, at the place that gave it.
func (w *issues) option(name, format string, args ...any) {
	w.at(cmp.Or(w.given[name], "--"+name), format, args...)
}

// refused notes why an option could not be used, with the remedy where there is one. No error is nothing wrong.
func (w *issues) refused(name string, err error) {
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
	w.option(name, "%s", message)
}

// err is INVALID_CONFIG with every issue, ordered by place, or nil where nothing is wrong.
func (w *issues) err() error {
	if len(w.found) == 0 {
		return nil
	}
	slices.SortStableFunc(w.found, func(a, b fault.Issue) int { return cmp.Compare(a.Path, b.Path) })
	return &fault.Error{
		Code: fault.InvalidConfig, Message: "the configuration is not valid", Issues: w.found, Remedy: "see --help",
	}
}
