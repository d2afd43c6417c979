package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// MaxDocument bounds a profile as written, in bytes: with its resolved steps it must fit into one event.
const MaxDocument = 64 << 10

// Parse reads a profile as a person wrote it and refuses what is malformed, unknown or contradictory: INVALID_CONFIG with
// every issue and its path, the first path in the details.
func Parse(data []byte) (Document, error) {
	if len(data) > MaxDocument {
		return Document{}, Refuse(fault.Issue{Message: fmt.Sprintf("is longer than %d bytes", MaxDocument)})
	}
	if !json.Valid(data) {
		return Document{}, Refuse(fault.Issue{Message: "is not JSON"})
	}
	var r reader
	doc := r.document(data)
	issues := append(r.issues, Check(doc)...)
	return doc, Refuse(distinct(issues)...)
}

// Refuse makes one error of the issues of a profile; nil where there are none.
func Refuse(issues ...fault.Issue) error {
	if len(issues) == 0 {
		return nil
	}
	e := fault.New(fault.InvalidConfig, "the profile is not valid").WithDetail("path", issues[0].Path)
	e.Issues = issues
	return e
}

// distinct keeps the first issue of each path: what could not be read is not also called missing.
func distinct(issues []fault.Issue) []fault.Issue {
	seen := map[string]bool{}
	var kept []fault.Issue
	for _, i := range issues {
		if !seen[i.Path] {
			kept = append(kept, i)
		}
		seen[i.Path] = true
	}
	return kept
}

// reader walks a document and keeps on after an issue.
type reader struct{ issues []fault.Issue }

func (r *reader) add(path, format string, args ...any) {
	r.issues = append(r.issues, fault.Issue{Path: path, Message: fmt.Sprintf(format, args...)})
}

// fields says what reads each field of an object.
type fields map[string]func(path string, raw json.RawMessage)

func (r *reader) object(path string, raw json.RawMessage, known fields) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		r.add(path, "is not an object")
		return
	}
	if twice := repeated(raw); twice != "" {
		r.add(join(path, cut(twice)), "is given twice")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read, ok := known[name]
		if !ok {
			r.add(join(path, cut(name)), "is not a field; the fields are %v", slices.Sorted(maps.Keys(known)))
			continue
		}
		read(join(path, name), values[name])
	}
}

// repeated finds a name that stands twice in an object: which of the two was meant can't be told.
func repeated(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return ""
		}
		if seen[name] {
			return name
		}
		seen[name] = true
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return ""
		}
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// into reads a value of one type.
func into[T any](r *reader, to *T, what string) func(string, json.RawMessage) {
	return func(path string, raw json.RawMessage) {
		if json.Unmarshal(raw, to) != nil || string(raw) == "null" {
			r.add(path, "is not %s", what)
		}
	}
}

func (r *reader) list(read func(path string, raw json.RawMessage)) func(string, json.RawMessage) {
	return func(path string, raw json.RawMessage) {
		var values []json.RawMessage
		if json.Unmarshal(raw, &values) != nil || values == nil {
			r.add(path, "is not a list")
		}
		for i, value := range values {
			read(fmt.Sprintf("%s[%d]", path, i), value)
		}
	}
}

func (r *reader) document(raw json.RawMessage) (doc Document) {
	r.object("", raw, fields{
		"id":          into(r, &doc.ID, "text"),
		"version":     into(r, &doc.Version, "a whole number"),
		"description": into(r, &doc.Description, "text"),
		"public":      into(r, &doc.Public, "true or false"),
		"target":      into(r, &doc.Target, "text"),
		"role":        into(r, &doc.Role, "text"),
		"image":       into(r, &doc.Image, "text"),
		"drivers":     into(r, &doc.Drivers, "an object of text"),
		"userData":    func(path string, raw json.RawMessage) { doc.UserData = r.userData(path, raw) },
		"hostConfig":  r.list(func(path string, raw json.RawMessage) { doc.HostConfig = append(doc.HostConfig, r.unit(path, raw)) }),
		"steps":       r.list(func(path string, raw json.RawMessage) { doc.Steps = append(doc.Steps, r.step(path, raw, true)) }),
		"cleanup":     r.list(func(path string, raw json.RawMessage) { doc.Cleanup = append(doc.Cleanup, r.step(path, raw, true)) }),
	})
	return doc
}

func (r *reader) userData(path string, raw json.RawMessage) *UserData {
	u := &UserData{}
	r.object(path, raw, fields{"kind": into(r, &u.Kind, "text"), "template": into(r, &u.Template, "text")})
	return u
}

func (r *reader) unit(path string, raw json.RawMessage) (u ConfigUnit) {
	r.object(path, raw, fields{
		"name": into(r, &u.Name, "text"), "when": into(r, &u.When, "text"),
		"settings": func(_ string, raw json.RawMessage) { u.Settings = raw },
	})
	return u
}

// step reads a step; inner ones, which follow a failure, have none of their own.
func (r *reader) step(path string, raw json.RawMessage, outer bool) (s Step) {
	r.object(path, raw, fields{
		"use":        into(r, &s.Use, "text"),
		"id":         into(r, &s.ID, "text"),
		"on":         into(r, &s.On, "text"),
		"with":       func(_ string, raw json.RawMessage) { s.With = raw },
		"when":       into(r, &s.When, "text"),
		"timeout":    into(r, &s.Timeout, durationHint[len("is not "):]),
		"retries":    into(r, &s.Retries, "a whole number"),
		"retryDelay": into(r, &s.RetryDelay, durationHint[len("is not "):]),
		"await":      into(r, &s.Await, "text"),
		"fallback":   into(r, &s.Fallback, "text"),
		"onFailure": func(path string, raw json.RawMessage) {
			o := &OnFailure{}
			s.OnFailure = o
			switch {
			case !isObject(raw):
				into(r, &o.Policy, "fail, continue, rescue, or a step")(path, raw)
			case !outer:
				r.add(path, "a step that follows a failure has none of its own")
			default:
				inner := r.step(path, raw, false)
				o.Policy, o.Step = PolicyFail, &inner
			}
		},
	})
	return s
}
