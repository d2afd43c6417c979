package redfish

import (
	"context"
	"net/http"
	"strings"
)

const patchTries = 6

// patch changes a resource. tag is what the last read gave; a precondition that fails is tried anew with a fresh tag, and
// then with other forms of it: without the mark of a weak tag, without any.
func (c *conn) patch(ctx context.Context, path string, body any, tag string) (*answer, error) {
	form := c.known().ETag
	r := request{method: http.MethodPatch, path: path, body: body}
	for tries, moved := 0, 0; ; tries++ {
		r.tag = shape(tag, form)
		a, err := c.do(ctx, r)
		if err != nil {
			return nil, err
		}
		if (a.status != http.StatusPreconditionFailed && a.status != http.StatusPreconditionRequired) || tries == patchTries {
			if a.ok() {
				c.learn(func(l *learned) { l.ETag = form })
			}
			return a, nil
		}
		_, fresh, err := c.get(ctx, path)
		if err != nil {
			return nil, err
		}
		was := tag
		tag = fresh.etag()
		switch {
		case tag == "" && was == "*":
			return a, nil
		case tag == "":
			form, tag = "", "*" // there is none, and yet one is wanted
		case a.status == http.StatusPreconditionRequired || form == tagNone:
			form = ""
		case was != tag && moved < 3: // it had moved under us
			moved++
		case form == "" && strings.HasPrefix(tag, "W/"):
			form = tagStrong
		default:
			form = tagNone
		}
	}
}

// shape is a tag as the controller wants it.
func shape(tag, form string) string {
	switch form {
	case tagNone:
		return ""
	case tagStrong:
		return strings.TrimPrefix(tag, "W/")
	}
	return tag
}
