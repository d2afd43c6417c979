package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.jetify.com/typeid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// waits is how long an answer waits for a read model: after a verb, on a read that asks for a position, and on one that shows what
// has happened up to now.
type waits struct{ verb, read, head time.Duration }

const (
	verbPatience = 2 * time.Second
	readPatience = 5 * time.Second
	headPatience = time.Second
)

// Fresh is what every read takes to see what its caller wrote.
type Fresh struct {
	MinPosition uint64 `query:"minPosition" doc:"wait, for up to 5 s, until the read model has reached this log position"`
	Position    uint64 `header:"Metal-Position" doc:"as minPosition; the larger of the two counts"`
}

// await waits until a projection has reached what the caller asked for. Errors: INVALID_INPUT for a position that the log
// has not reached, UNAVAILABLE with the reached position.
func (a *API) await(ctx context.Context, projection string, f Fresh) error {
	want, path := event.Position(f.MinPosition), "query.minPosition"
	if f.Position > f.MinPosition {
		want, path = event.Position(f.Position), "header.Metal-Position"
	}
	if want == 0 || a.waiter.Position(projection) >= want {
		return nil
	}
	if err := a.inLog(ctx, want, path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.waits.read)
	defer cancel()
	return late(a.waiter.Wait(ctx, projection, want), projection, a.waiter.Position(projection))
}

// current waits, briefly, until a projection has reached the present head of the log: for the read models that let events
// gather longer than verbs wait, so that who has just changed something sees it also without naming a position. What is
// not reached in time is not waited for.
func (a *API) current(ctx context.Context, projection string, f Fresh) error {
	if err := a.await(ctx, projection, f); err != nil {
		return err
	}
	head, err := a.store.Head(ctx)
	if err != nil {
		return logFault(err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.waits.head)
	defer cancel()
	_ = a.waiter.Wait(ctx, projection, head) // the answer tells what it shows
	return nil
}

// late makes a read model that is behind UNAVAILABLE.
func late(err error, projection string, reached event.Position) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, "the read model %s is at position %s", projection, reached).
		WithDetail("projection", projection).WithDetail("reached", reached).
		WithRemedy("ask again; what was written is safe in the log")
}

// inLog refuses a position beyond the head of the log.
func (a *API) inLog(ctx context.Context, p event.Position, path string) error {
	head, err := a.store.Head(ctx)
	if err != nil {
		return logFault(err)
	}
	if p > head {
		return fault.Invalid(fault.Issue{Path: path, Message: fmt.Sprintf("the log ends at position %s", head)})
	}
	return nil
}

func logFault(err error) error {
	if err == nil || fault.CodeOf(err) != fault.Internal {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "the event log could not be read")
}

// Paging is what every list takes.
type Paging struct {
	Limit  int      `query:"limit" minimum:"1" maximum:"100" doc:"items of one page, from 1 to 100; left out: 100"`
	Cursor string   `query:"cursor" doc:"the next of the page before"`
	Fields []string `query:"fields" doc:"the fields of items to give, separated by commas; left out: all"`
}

func (p Paging) page() projections.Page { return projections.Page{Limit: p.Limit, Cursor: p.Cursor} }

// page answers with one page of items that are JSON already.
func (a *API) page(projection event.Position, items []json.RawMessage, next string, fields []string, known map[string]bool,
) (*answer, error) {
	if err := pick(items, fields, known); err != nil {
		return nil, err
	}
	size := len(`{"items":[],"next":""}`) + len(next) + 1
	for _, item := range items {
		size += len(item) + 1
	}
	body := append(make([]byte, 0, size), `{"items":[`...)
	for i, item := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, item...)
	}
	body = append(body, ']')
	if next != "" {
		body = append(append(append(body, `,"next":"`...), next...), '"') // a cursor is base64
	}
	return &answer{Position: projection.String(), Body: append(body, '}', '\n')}, nil
}

// pick keeps only the fields asked for, by name.
func pick(items []json.RawMessage, fields []string, known map[string]bool) error {
	if len(fields) == 0 {
		return nil
	}
	var issues []fault.Issue
	for i, f := range fields {
		if !known[f] {
			issues = append(issues, fault.Issue{Path: fmt.Sprintf("query.fields[%d]", i), Message: "there is no such field"})
		}
	}
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	for i, item := range items {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(item, &all); err != nil {
			return err
		}
		var parts []string
		for _, f := range fields {
			if value, ok := all[f]; ok {
				parts = append(parts, `"`+f+`":`+string(value))
			}
		}
		items[i] = json.RawMessage("{" + strings.Join(parts, ",") + "}")
	}
	return nil
}

// pathID reads the id of a path.
func pathID[T id.Kind, PT typeid.SubtypePtr[T]](text string) (T, error) {
	return idAt[T, PT]("path.id", text)
}

// narrow reads an id of the query, where it may be left out.
func narrow[T id.Kind, PT typeid.SubtypePtr[T]](wrong *issues, name, text string) T {
	var v T
	if text != "" {
		var err error
		v, err = idAt[T, PT]("query."+name, text)
		wrong.take(err)
	}
	return v
}

// idAt reads an id. The error does not repeat the text: it may be a secret in the wrong place.
func idAt[T id.Kind, PT typeid.SubtypePtr[T]](path, text string) (T, error) {
	v, err := id.Parse[T, PT](text)
	if err != nil {
		return v, fault.Invalid(fault.Issue{Path: path, Message: "an id of the form " + v.Prefix() + "_<26 characters>"})
	}
	return v, nil
}
