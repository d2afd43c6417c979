package httpapi

import (
	"errors"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// issues gathers what is wrong with a request, so that its caller hears it all at once.
type issues []fault.Issue

func (i *issues) add(path, message string) {
	if issue := (fault.Issue{Path: path, Message: message}); !slices.Contains(*i, issue) {
		*i = append(*i, issue)
	}
}

// take adds the issues of an error.
func (i *issues) take(err error) {
	var f *fault.Error
	if errors.As(err, &f) {
		*i = append(*i, f.Issues...)
	}
}

func (i *issues) err() error {
	if len(*i) == 0 {
		return nil
	}
	return fault.Invalid(*i...)
}
