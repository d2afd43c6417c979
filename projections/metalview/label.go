package metalview

import (
	"strings"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections"
)

// Label asks for nodes with a label, of any value or of one.
type Label struct {
	Key   string
	Value *string // nil: any
}

// ParseLabel reads key or key=value. Errors: INVALID_INPUT at path.
func ParseLabel(path, text string) (Label, error) {
	key, value, valued := strings.Cut(text, "=")
	switch {
	case key == "":
		return Label{}, fault.Invalid(fault.Issue{Path: path, Message: "of the form key or key=value"})
	case valued:
		return Label{Key: key, Value: &value}, nil
	}
	return Label{Key: key}, nil
}

func (l Label) where(w *projections.Where) {
	if l.Value == nil {
		w.Add("labels ? {}", l.Key)
		return
	}
	w.Add("labels @> {}", map[string]string{l.Key: *l.Value})
}
