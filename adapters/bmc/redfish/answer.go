package redfish

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is what came back for one request, whatever its status.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) ok() bool { return a.status >= 200 && a.status < 300 }

// doc is the body as far as it is a JSON object, else nil.
func (a *answer) doc() document {
	doc, err := parse(a.body)
	if err != nil {
		return nil
	}
	return doc
}

// message is one entry of an extended error, in whichever of its shapes.
type message struct {
	id, text string
	args     []string
	names    []string // properties it is about
	critical bool
}

const extendedInfo = "@Message.ExtendedInfo"

// messages gathers what a body says about errors: the standard form, one object instead of a list, annotations of
// properties, the error's own code and text, and plain text.
func (a *answer) messages() []message {
	doc := a.doc()
	if doc == nil {
		if text := strings.TrimSpace(string(a.body)); text != "" {
			return []message{{text: text}}
		}
		return nil
	}
	var out []message
	failed := doc.object("error")
	for _, d := range failed.objects(extendedInfo) {
		out = append(out, asMessage(d))
	}
	for _, name := range sortedKeys(doc) {
		if strings.HasSuffix(name, extendedInfo) {
			for _, d := range doc.objects(name) {
				m := asMessage(d)
				if property := strings.TrimSuffix(name, extendedInfo); property != "" {
					m.names = append(m.names, property)
				}
				out = append(out, m)
			}
		}
	}
	if failed != nil {
		out = append(out, message{id: failed.text("code"), text: failed.text("message")})
	} else if text := doc.text("error"); text != "" {
		out = append(out, message{text: text})
	}
	return out
}

func asMessage(d document) message {
	severity := d.text("MessageSeverity")
	if severity == "" {
		severity = d.text("Severity")
	}
	return message{
		id: d.text("MessageId"), text: d.text("Message"), args: d.texts("MessageArgs"), names: d.texts("RelatedProperties"),
		critical: strings.EqualFold(severity, "Critical"),
	}
}

func sortedKeys(d document) []string {
	keys := make([]string, 0, len(d))
	for k := range d {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// says reports whether a message's id, text or argument contains one of the words, in any case.
func (a *answer) says(words ...string) bool {
	for _, m := range a.messages() {
		all := strings.ToLower(m.id + "\n" + m.text + "\n" + strings.Join(m.args, "\n") + "\n" + strings.Join(m.names, "\n"))
		for _, w := range words {
			if strings.Contains(all, strings.ToLower(w)) {
				return true
			}
		}
	}
	return false
}

// failed reports an answer that is an error: by its status, or by an error in the body of a success.
func (a *answer) failed() bool { return !a.ok() || a.doc().object("error") != nil }

// retryAfter is how long the controller asks to wait: the header in either form, or the message for it.
func (a *answer) retryAfter(now time.Time) time.Duration {
	if v := a.header.Get("Retry-After"); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			return time.Duration(min(n, 86400)) * time.Second
		}
		if t, err := http.ParseTime(v); err == nil {
			return max(0, t.Sub(now))
		}
	}
	var longest time.Duration
	for _, m := range a.messages() {
		if !strings.Contains(m.id, "ServiceTemporarilyUnavailable") || len(m.args) == 0 {
			continue
		}
		if n, err := strconv.Atoi(strings.Fields(m.args[0] + " x")[0]); err == nil && n > 0 {
			longest = max(longest, time.Duration(min(n, 86400))*time.Second)
		}
	}
	return longest
}

// etag is the tag to send back with If-Match: the header's, else the body's; empty where there is none. Compression's
// mark is taken off, and a bare tag is quoted.
func (a *answer) etag() string {
	tag := strings.TrimSpace(a.header.Get("ETag"))
	if tag == "" {
		tag = a.doc().text("@odata.etag")
	}
	weak := strings.HasPrefix(tag, "W/")
	tag = strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
	tag = strings.TrimSuffix(strings.TrimSuffix(tag, "-gzip"), ";gzip")
	switch {
	case tag == "":
		return ""
	case weak:
		return `W/"` + tag + `"`
	default:
		return `"` + tag + `"`
	}
}
