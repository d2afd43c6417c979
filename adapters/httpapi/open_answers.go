package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// openAnswers lets answers have fields that the document does not know: a later version may add some. Requests stay
// closed.
func openAnswers(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	taken := map[string]bool{}
	var take func(*huma.Schema)
	take = func(s *huma.Schema) {
		if s == nil {
			return
		}
		if name := refName(s); name != "" && !taken[name] {
			taken[name] = true
			take(schemas[name])
		}
		for _, p := range s.Properties {
			take(p)
		}
		take(s.Items)
		if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
			take(more)
		}
	}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			for _, media := range op.RequestBody.Content {
				take(media.Schema)
			}
		}
	}
	for name, s := range schemas {
		if closed, ok := s.AdditionalProperties.(bool); ok && !closed && !taken[name] {
			s.AdditionalProperties = nil
		}
	}
}

// refName is the name of the schema that s refers to; empty for none.
func refName(s *huma.Schema) string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }
