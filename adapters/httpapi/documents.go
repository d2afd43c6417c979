package httpapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/better-compute/metal/domain/fault"
)

//go:embed docs.html
var docsPage string

// OpenAPI is the OpenAPI 3.1 document of the API, indented. It is the same for every configuration with a Signer.
func (a *API) OpenAPI() ([]byte, error) {
	raw, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// documents serves the OpenAPI document, and a page to read it on that needs no script and no network. Both are made once: nobody
// needs a token to ask for them.
func (a *API) documents(router chi.Router) {
	document := sync.OnceValues(a.OpenAPI)
	router.Get("/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		raw, err := document()
		if err != nil {
			refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw) // a caller that has gone is told nothing
	})
	page := sync.OnceValues(a.docsHTML)
	router.Get("/docs", func(w http.ResponseWriter, r *http.Request) {
		raw, err := page()
		if err != nil {
			refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_, _ = w.Write(raw) // a caller that has gone is told nothing
	})
}

// docsHTML is the page.
func (a *API) docsHTML() ([]byte, error) {
	var out bytes.Buffer
	err := template.Must(template.New("docs").Parse(docsPage)).Execute(&out, a.docs())
	return out.Bytes(), err
}

type (
	docs struct {
		Title, Description, Version string
		Groups                      []docsGroup
		Schemas                     []docsSchema
		Codes                       []fault.CodeInfo
	}
	docsGroup struct {
		Name       string
		Operations []docsOperation
	}
	docsOperation struct {
		*huma.Operation
		Takes, Gives string // names of schemas
	}
	docsSchema struct {
		Name   string
		Fields []docsField
	}
	docsField struct {
		Name, Type, Link, Description string
		Required                      bool
	}
)

// docs arranges the document for reading.
func (a *API) docs() docs {
	doc := a.huma.OpenAPI()
	d := docs{
		Title: doc.Info.Title, Description: doc.Info.Description, Version: doc.Info.Version, Codes: fault.Codes,
	}
	for _, path := range sortedKeys(doc.Paths) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op != nil {
				d.add(op)
			}
		}
	}
	schemas := doc.Components.Schemas.Map()
	for _, name := range sortedKeys(schemas) {
		d.Schemas = append(d.Schemas, schemaDocs(name, schemas[name]))
	}
	return d
}

func (d *docs) add(op *huma.Operation) {
	shown := docsOperation{Operation: op}
	if op.RequestBody != nil {
		shown.Takes = named(op.RequestBody.Content)
	}
	for _, status := range []string{"200", "201"} {
		if r := op.Responses[status]; r != nil {
			shown.Gives = named(r.Content)
		}
	}
	at := slices.IndexFunc(d.Groups, func(g docsGroup) bool { return g.Name == op.Tags[0] })
	if at < 0 {
		at = len(d.Groups)
		d.Groups = append(d.Groups, docsGroup{Name: op.Tags[0]})
	}
	d.Groups[at].Operations = append(d.Groups[at].Operations, shown)
}

func named(content map[string]*huma.MediaType) string {
	for _, media := range content {
		if media.Schema != nil {
			return refName(media.Schema)
		}
	}
	return ""
}

func schemaDocs(name string, s *huma.Schema) docsSchema {
	shown := docsSchema{Name: name}
	for _, field := range sortedKeys(s.Properties) {
		p := s.Properties[field]
		f := docsField{Name: field, Type: p.Type, Description: p.Description, Required: slices.Contains(s.Required, field)}
		switch {
		case p.Ref != "":
			f.Type, f.Link = refName(p), refName(p)
		case p.Items != nil && p.Items.Ref != "":
			f.Type, f.Link = "list of "+refName(p.Items), refName(p.Items)
		case p.Items != nil:
			f.Type = "list of " + p.Items.Type
		}
		shown.Fields = append(shown.Fields, f)
	}
	return shown
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
