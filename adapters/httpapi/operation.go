package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
)

// answer is what an operation gives. Body is JSON that is sent as it is.
type answer struct {
	Status       int
	ContentType  string `header:"Content-Type" hidden:"true"`
	ETag         string `header:"ETag"`
	Position     string `header:"Metal-Position"`
	Location     string `header:"Location"`
	CacheControl string `header:"Cache-Control" hidden:"true"`
	Body         []byte
}

// document describes an operation.
type document struct {
	id, method, path string
	tag, summary     string
	more             string       // what the summary does not say
	gives            reflect.Type // of the body; nil: none
	status           int          // of success; 0 is 200
	late             bool         // may answer 202
}

// operate registers an operation. Its errors become problems.
func operate[I any](a *API, d document, handle func(context.Context, *I) (*answer, error)) {
	if d.status == 0 {
		d.status = http.StatusOK
	}
	op := a.operation(d, "application/json")
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*answer, error) {
		if err := requestOf(ctx).unknown.err(); err != nil {
			return nil, problemOf(ctx, err)
		}
		out, err := handle(ctx, in)
		if err != nil {
			return nil, problemOf(ctx, err)
		}
		if out.Status == 0 {
			out.Status = d.status
		}
		out.ContentType = "application/json"
		return out, nil
	})
}

// stream registers an operation whose answer is written bit by bit.
func stream[I any](a *API, d document, media string, handle func(context.Context, *I) (func(huma.Context), error)) {
	d.status = http.StatusOK
	huma.Register(a.huma, a.operation(d, media), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		if err := requestOf(ctx).unknown.err(); err != nil {
			return nil, problemOf(ctx, err)
		}
		body, err := handle(ctx, in)
		if err != nil {
			return nil, problemOf(ctx, err)
		}
		return &huma.StreamResponse{Body: body}, nil
	})
}

// headersOf answers a HEAD of a stream.
func headersOf(media string) func(huma.Context) {
	return func(hc huma.Context) {
		hc.SetHeader("Content-Type", media)
		hc.SetStatus(http.StatusOK)
	}
}

func (a *API) operation(d document, media string) huma.Operation {
	op := huma.Operation{
		OperationID: d.id, Method: d.method, Path: d.path, Summary: d.summary, Description: d.more,
		Tags: []string{d.tag}, DefaultStatus: d.status,
		MaxBodyBytes: contract.MaxBody + 1, BodyReadTimeout: -1, // the body was read and bounded before
		Responses: map[string]*huma.Response{},
		Security:  []map[string][]string{{"bearer": {}}},
	}
	schemas := a.huma.OpenAPI().Components.Schemas
	ok := &huma.Response{Description: http.StatusText(d.status), Content: map[string]*huma.MediaType{}}
	if d.gives != nil {
		ok.Content[media] = &huma.MediaType{Schema: schemas.Schema(d.gives, true, d.id+"Answer")}
	}
	op.Responses[strconv.Itoa(d.status)] = ok
	if d.late {
		op.Responses["202"] = &huma.Response{
			Description: "It happened; the read models have not caught up yet", Content: ok.Content,
		}
	}
	op.Responses["default"] = &huma.Response{Description: "A problem (RFC 9457)", Content: map[string]*huma.MediaType{
		contract.ProblemType: {Schema: schemas.Schema(reflect.TypeFor[problem](), true, "Problem")},
	}}
	return op
}

// moments are the parameters that name a moment. An empty one is no moment: it would be answered with the present, which
// was not asked for.
var moments = map[string]bool{"at": true, "until": true}

// strangers notes parameters of the query that an operation does not have: they are told of together with whatever else
// is wrong. So are moments that are empty.
func strangers(ctx huma.Context, next func(huma.Context)) {
	url := ctx.URL()
	if url.RawQuery != "" {
		r := requestOf(ctx.Context())
		query := url.Query()
		for _, name := range sortedKeys(query) {
			if moments[name] && slices.Contains(query[name], "") {
				r.unknown.add("query."+name, "a time (RFC 3339) or a log position; it is empty")
			}
			if !slices.ContainsFunc(ctx.Operation().Parameters, func(p *huma.Param) bool {
				return p.In == "query" && p.Name == name
			}) {
				r.unknown.add("query."+name, "there is no such parameter")
			}
		}
	}
	next(ctx)
}

// oneOf and pageOf are the types that operations give.
func oneOf[T any]() reflect.Type  { return reflect.TypeFor[T]() }
func pageOf[T any]() reflect.Type { return reflect.TypeFor[contract.List[T]]() }

// encode writes v as JSON in which <, > and & are themselves.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// etag is the entity tag of a version.
func etag(v event.Version) string { return `"` + strconv.FormatUint(uint64(v), 10) + `"` }

// humaErrors makes huma's own errors problems, and field names strict, once for the process: huma keeps both in variables.
var humaErrors = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return fromHuma(context.Background(), status, message, errs...)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		return fromHuma(ctx.Context(), status, message, errs...)
	}
})

// apiVersion is that of the contract. It is not the program's.
const apiVersion = "1"

func humaConfig() huma.Config {
	humaErrors()
	form := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: formed}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "metal", Version: apiVersion,
				Description: "Bare-metal machines as resources: enroll them, apply verbs, read them, follow what happens.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", Description: "A token of a principal"},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": form, "json": form},
		DefaultFormat: "application/json",
	}
}
