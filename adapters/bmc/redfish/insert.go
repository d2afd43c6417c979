package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// insert offers the image to one drive: the image alone at first, then with what the controller names as missing.
func (m *machine) insert(ctx context.Context, s slot, image string) error {
	known := m.known()
	body, changes := map[string]any{"Image": image}, map[string]int{}
	for _, name := range known.Insert {
		addParameter(body, name, s, image)
	}
	r := request{method: http.MethodPost, path: s.insert}
	byPatch := s.insert == "" || known.InsertBy == insertPatch
	p := m.c.d.pace()
	for tries := 0; ; tries++ {
		var a *answer
		var err error
		if byPatch {
			r = request{method: http.MethodPatch, path: s.path}
			body["Inserted"] = true
			a, err = m.c.patch(ctx, s.path, body, s.tag)
		} else {
			r.body = body
			a, err = m.c.do(ctx, r)
		}
		if err != nil {
			return err
		}
		if !a.failed() {
			m.learn(func(f *facts) { f.Insert, f.InsertBy = extraParameters(body), byWhat(byPatch) })
			return m.c.settle(ctx, a)
		}
		switch {
		case !byPatch && (a.status == 404 || a.status == 405 || a.status == 501):
			byPatch = true
			body = map[string]any{"Image": image}
		case tries > 8, !mendInsert(body, changes, a, s, image) && !transient(a):
			return m.c.refusal(r, a)
		case a.retryAfter(m.c.d.o.Now()) > patience:
			return m.c.refusal(r, a)
		}
		if p.wait(ctx, a.retryAfter(m.c.d.o.Now())) != nil {
			return ended(ctx)
		}
	}
}

func byWhat(patch bool) string {
	if patch {
		return insertPatch
	}
	return ""
}

// parameters are what controllers may want beside the image, in the order in which they are added.
var parameters = []string{"TransferProtocolType", "TransferMethod", "MediaType", "UserName", "Password", "Inserted", "WriteProtected"}

func extraParameters(body map[string]any) []string {
	var out []string
	for _, name := range parameters {
		if _, ok := body[name]; ok {
			out = append(out, name)
		}
	}
	return out
}

// addParameter sets one with the value that the image implies. Credentials are dummies: images are fetched without.
func addParameter(body map[string]any, name string, s slot, image string) {
	switch name {
	case "TransferProtocolType":
		scheme, _, _ := strings.Cut(image, "://")
		body[name] = strings.ToUpper(scheme)
	case "TransferMethod":
		body[name] = string(schemas.StreamTransferMethod)
	case "MediaType":
		body[name] = string(schemas.CDVirtualMediaType)
		if types := s.doc.texts("MediaTypes"); len(types) > 0 && !slices.Contains(types, string(schemas.CDVirtualMediaType)) {
			body[name] = string(schemas.DVDVirtualMediaType)
		}
	case "UserName", "Password":
		body[name] = "none"
	case "Inserted", "WriteProtected":
		body[name] = true
	}
}

// mendInsert adds the parameters that a refusal names, and takes out those that were sent and are named; each at most once
// either way, which changes counts. The names stand in arguments, related properties or in the text only; where something is
// missing and no name is told, the usual ones are tried.
func mendInsert(body map[string]any, changes map[string]int, a *answer, s slot, image string) bool {
	if a.status == 401 || a.status == 403 || a.status == 503 {
		return false
	}
	changed := false
	for _, name := range parameters {
		if !a.names(name) || changes[name] == 2 {
			continue
		}
		changes[name]++
		if _, sent := body[name]; sent {
			delete(body, name)
		} else {
			addParameter(body, name, s, image)
		}
		changed = true
	}
	if changed {
		return true
	}
	for _, group := range [][]string{{"TransferProtocolType"}, {"TransferMethod"}, {"UserName", "Password"}} {
		wanted := a.says("missing", "required")
		if group[0] == "UserName" {
			wanted = wanted || a.says("credentials")
		}
		if !wanted || changes[group[0]] > 0 {
			continue
		}
		for _, name := range group {
			changes[name]++
			addParameter(body, name, s, image)
		}
		return true
	}
	return false
}

// names reports whether a message is about a parameter: its name as a whole word. In plain text a name that is also a word
// of the language counts as written only.
func (a *answer) names(parameter string) bool {
	for _, m := range a.messages() {
		for _, s := range append(slices.Clone(m.args), m.names...) {
			if containsWord(s, parameter) {
				return true
			}
		}
		if containsWord(m.text, parameter) && (parameter != "Inserted" || strings.Contains(m.text, parameter)) {
			return true
		}
	}
	return false
}

func containsWord(s, word string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}), func(w string) bool { return strings.EqualFold(w, word) })
}
