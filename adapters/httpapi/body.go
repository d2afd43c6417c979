package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// bodyTimeout bounds how long a caller may take to send a body.
const bodyTimeout = 30 * time.Second

// boundBody has a body come in time or not at all. That holds also where nobody looks at it: the server itself reads what is left
// of a body before it answers, and would wait for a caller without a token as long as that likes.
func boundBody(w http.ResponseWriter, r *http.Request, within time.Duration) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // not every server has deadlines
	}
}

// unboundBody is for a body that is there: what its request takes from now on is not the caller's doing.
func unboundBody(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// takeBody reads a body of at most contract.MaxBody bytes and checks what a decoder would let pass: its media type, UTF-8,
// doubled keys, anything after the value. canonical is the same for bodies that mean the same (RFC 8785).
func takeBody(w http.ResponseWriter, r *http.Request) (body, canonical []byte, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, contract.MaxBody))
	if err != nil {
		return nil, nil, bodyFault(r, err)
	}
	unboundBody(w)
	if len(body) == 0 {
		return nil, nil, nil
	}
	if err := mediaType(r); err != nil {
		return nil, nil, err
	}
	if r.Method == http.MethodDelete {
		return nil, nil, fault.Invalid(fault.Issue{Path: "body", Message: "a deletion has no body"})
	}
	canonical, err = canonicalJSON(body)
	return body, canonical, err
}

func bodyFault(r *http.Request, err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return problemOf(r.Context(), fault.Invalid(fault.Issue{
			Path: "body", Message: fmt.Sprintf("at most %d bytes", large.Limit),
		})).withStatus(http.StatusRequestEntityTooLarge)
	}
	return problemOf(r.Context(), fault.Invalid(fault.Issue{
		Path: "body", Message: "it did not arrive whole, or not in time",
	})).withStatus(http.StatusRequestTimeout)
}

func mediaType(r *http.Request) error {
	refused := func(path, message string) error {
		return problemOf(r.Context(), fault.Invalid(fault.Issue{Path: path, Message: message})).
			withStatus(http.StatusUnsupportedMediaType)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refused("header.Content-Encoding", "a body is not compressed")
	}
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	name, params, err := mime.ParseMediaType(given)
	if err != nil || name != "application/json" {
		return refused("header.Content-Type", "application/json")
	}
	if set := params["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return refused("header.Content-Type", "the charset is utf-8")
	}
	return nil
}

// canonicalJSON checks that body is one JSON value, strictly, and gives its canonical form.
func canonicalJSON(body []byte) ([]byte, error) {
	value := jsontext.Value(bytes.Clone(body))
	if deeper(body, maxDepth) {
		return nil, fault.Invalid(fault.Issue{
			Path: "body", Message: fmt.Sprintf("objects and lists are at most %d deep in each other", maxDepth),
		})
	}
	err := value.Canonicalize()
	if err == nil {
		return value, nil
	}
	issue := fault.Issue{Path: "body", Message: "not well-formed JSON in UTF-8"}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		issue.Path = pathOf(syntax.JSONPointer)
		issue.Message += fmt.Sprintf(", at byte %d", syntax.ByteOffset)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			issue.Message = "given more than once"
		}
	}
	return nil, fault.Invalid(issue)
}

// maxDepth bounds how deep objects and lists of a body are in each other. Nothing that is asked for comes near it.
const maxDepth = 64

// deeper tells whether text opens more than most objects and lists in each other, before anything goes down into them.
func deeper(text []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// maxPath bounds a path that a caller's own keys make.
const maxPath = 200

// pathOf writes a JSON pointer (RFC 6901) as paths are written here: body.macs[1].
func pathOf(p jsontext.Pointer) string {
	path := "body"
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			path += "[" + token + "]"
			continue
		}
		path += "." + token
	}
	if len(path) > maxPath {
		path = path[:maxPath] + "…"
	}
	return strings.ToValidUTF8(path, "\uFFFD")
}

func readable(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
