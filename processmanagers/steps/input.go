package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
)

// Checker is an input that has more to refuse than its fields' types and tags do.
type Checker interface {
	// Check lists what is wrong, by path within the input.
	Check() []fault.Issue
}

// field is one field of an input struct. The tags say the rest: json its name, omitempty that it may be left out, enum the
// values that it may have, doc a sentence for people.
type field struct {
	name     string
	index    int
	required bool
	enum     []string
	doc      string
	kind     reflect.Type
}

func fieldsOf(t reflect.Type) (fields []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		entry := field{name: name, index: i, required: !strings.Contains(options, "omit"), doc: f.Tag.Get("doc"), kind: f.Type}
		if enum := f.Tag.Get("enum"); enum != "" {
			entry.enum = strings.Split(enum, ",")
		}
		fields = append(fields, entry)
	}
	return fields
}

// decode reads an input strictly and lists everything that is wrong with it. Nothing at all is an empty object.
func decode[I any](raw json.RawMessage) (in I, wrong []fault.Issue) {
	given := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return in, []fault.Issue{{Message: "is not a JSON object"}}
		}
	}
	into, known := reflect.ValueOf(&in).Elem(), map[string]bool{}
	for _, f := range fieldsOf(into.Type()) {
		known[f.name] = true
		value, there := given[f.name]
		if !there && f.required {
			wrong = append(wrong, fault.Issue{Path: f.name, Message: "is needed"})
		}
		if !there {
			continue
		}
		wrong = append(wrong, f.set(into.Field(f.index), value)...)
		if RefersToSecret(value) {
			wrong = append(wrong, fault.Issue{Path: f.name, Message: "holds a reference to a secret, which no profile may hand out"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !known[name] {
			wrong = append(wrong, fault.Issue{Path: name, Message: "is no input of this step"})
		}
	}
	if c, ok := any(&in).(Checker); ok && len(wrong) == 0 {
		wrong = c.Check()
	}
	return in, wrong
}

// RefersToSecret tells whether JSON holds a reference to a secret anywhere, however it is written: an agent that is sent one may
// fetch what it stands for. What is no JSON holds none.
func RefersToSecret(raw json.RawMessage) bool {
	var value any
	return json.Unmarshal(raw, &value) == nil && refersToSecret(value)
}

func refersToSecret(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.HasPrefix(v, "secret:") || strings.Contains(v, `"secret:`) // JSON in a text
	case []any:
		return slices.ContainsFunc(v, refersToSecret)
	case map[string]any:
		for key, element := range v {
			if refersToSecret(key) || refersToSecret(element) {
				return true
			}
		}
	}
	return false
}

func (f field) set(v reflect.Value, raw json.RawMessage) []fault.Issue {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v.Addr().Interface()); err != nil {
		path := f.name
		var mistyped *json.UnmarshalTypeError
		if errors.As(err, &mistyped) {
			if mistyped.Field != "" {
				path += "." + mistyped.Field
			}
			return []fault.Issue{{Path: path, Message: "is a " + mistyped.Value + " where " + f.schemaType() + " is wanted"}}
		}
		return []fault.Issue{{Path: path, Message: strings.TrimPrefix(err.Error(), "json: ")}}
	}
	if len(f.enum) > 0 && v.Kind() == reflect.String && !slices.Contains(f.enum, v.String()) {
		return []fault.Issue{{Path: f.name, Message: "one of " + strings.Join(f.enum, ", ")}}
	}
	return nil
}

func (f field) schemaType() string {
	if t, ok := schemaOf(f.kind)["type"].(string); ok {
		return t
	}
	return "something else"
}

// schema is the JSON Schema of an input struct, for people and editors: decode is what decides.
func schema[I any]() json.RawMessage {
	text, err := json.Marshal(schemaOf(reflect.TypeFor[I]()))
	if err != nil { // maps of strings and lists can always be written
		panic(err)
	}
	return text
}

func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[profile.Duration]():
		return map[string]any{"type": "string", "description": "a length of time, such as 90s or 1h30m"}
	case t == reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		return objectSchema(t)
	default:
		return map[string]any{"type": "integer"}
	}
}

func objectSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fieldsOf(t) {
		p := schemaOf(f.kind)
		if f.doc != "" {
			p["description"] = f.doc
		}
		if len(f.enum) > 0 {
			p["enum"] = f.enum
		}
		properties[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	return object
}
