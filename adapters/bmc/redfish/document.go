package redfish

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// document is a JSON object as a controller sent it. Its readers take what is there: a number in quotes, one object where a
// list belongs, null anywhere.
type document map[string]any

// parse reads an object. Anything else is an error.
func parse(body []byte) (document, error) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))))
	d.UseNumber() // integers beyond 2^53 stay what they are
	var doc document
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// at walks down objects; nil where the path ends early.
func (d document) at(path ...string) any {
	var v any = map[string]any(d)
	for _, key := range path {
		m := asObject(v)
		if m == nil {
			return nil
		}
		v = m[key]
	}
	return v
}

// has tells whether the key is present, be it null.
func (d document) has(path ...string) bool {
	parent := d
	if len(path) > 1 {
		parent = d.object(path[:len(path)-1]...)
	}
	_, ok := parent[path[len(path)-1]]
	return ok
}

// asObject takes an object, or a list of exactly one.
func asObject(v any) document {
	switch v := v.(type) {
	case map[string]any:
		return v
	case document:
		return v
	case []any:
		if len(v) == 1 {
			return asObject(v[0])
		}
	}
	return nil
}

func (d document) object(path ...string) document { return asObject(d.at(path...)) }

// objects takes a list of objects, or one object alone.
func (d document) objects(path ...string) []document {
	list, ok := d.at(path...).([]any)
	if !ok {
		if one := d.object(path...); one != nil {
			return []document{one}
		}
		return nil
	}
	var out []document
	for _, v := range list {
		if o, ok := v.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

func asText(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// text is the string at path without surrounding blanks, which some controllers pad with.
func (d document) text(path ...string) string { return asText(d.at(path...)) }

// label is a text that is kept and shown to people: of bounded length, without control characters.
func (d document) label(path ...string) string {
	out := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, d.text(path...)))
	return strings.TrimSpace(string(out[:min(len(out), 200)]))
}

// known is a label that was given by somebody: not what firmware writes where nobody did.
func (d document) known(path ...string) string {
	s := d.label(path...)
	if placeholders[strings.ToLower(s)] {
		return ""
	}
	return s
}

// texts takes a list of strings, or one alone.
func (d document) texts(path ...string) []string {
	switch v := d.at(path...).(type) {
	case []any:
		var out []string
		for _, e := range v {
			if s := asText(e); s != "" {
				out = append(out, s)
			}
		}
		return out
	default:
		if s := asText(v); s != "" {
			return []string{s}
		}
	}
	return nil
}

// number tells null from zero. Words that stand for none, such as NaN, are null.
func (d document) number(path ...string) (float64, bool) {
	f, err := strconv.ParseFloat(d.text(path...), 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// whole is a number that fits an int64, zero otherwise.
func (d document) whole(path ...string) int64 {
	f, ok := d.number(path...)
	if !ok || f < 0 || f > 1<<62 {
		return 0
	}
	return int64(f)
}

// flag tells null from false.
func (d document) flag(path ...string) (value, known bool) {
	b, err := strconv.ParseBool(d.text(path...))
	return b, err == nil
}

// asLink takes {"@odata.id": "/x"}, or the bare string that some write instead.
func asLink(v any) string {
	if o := asObject(v); o != nil {
		v = o["@odata.id"]
	}
	return localPath(asText(v))
}

func (d document) link(path ...string) string { return asLink(d.at(path...)) }

func (d document) links(path ...string) []string {
	list, ok := d.at(path...).([]any)
	if !ok {
		list = []any{d.at(path...)}
	}
	var out []string
	for _, v := range list {
		if l := asLink(v); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// localPath keeps the path and the query of a link: one that names a host is meant for this controller all the same, and
// nothing is ever sent to another.
func localPath(link string) string {
	if strings.HasPrefix(link, "redfish/") {
		link = "/" + link
	}
	u, err := url.Parse(link)
	if err != nil || u.Path == "" || u.Path[0] != '/' {
		return ""
	}
	path := "/" + strings.TrimLeft(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return path
}

// canonical makes links comparable: controllers vary case and the trailing slash.
func canonical(link string) string { return strings.ToLower(strings.TrimRight(link, "/")) }

// lastName is the last segment of a link.
func lastName(link string) string {
	link = strings.TrimRight(link, "/")
	return link[strings.LastIndex(link, "/")+1:]
}
