package client

import (
	"net/http"
	"net/url"
	"strings"
)

// operation is one row of the API: what the client sends, and what a test compares with schema/openapi.json.
type operation struct {
	method string
	path   string   // with {id} and the like
	query  []string // the parameters that the client can send
}

// to fills the path's parameters in, escaped.
func (o operation) to(parameters ...string) string {
	path := o.path
	for _, value := range parameters {
		before, rest, _ := strings.Cut(path, "{")
		_, after, _ := strings.Cut(rest, "}")
		path = before + url.PathEscape(value) + after
	}
	return path
}

func (o operation) mutates() bool { return o.method != http.MethodGet }

func get(path string, query ...string) operation {
	return operation{method: http.MethodGet, path: path, query: query}
}

func post(path string) operation { return operation{method: http.MethodPost, path: path} }
func put(path string) operation  { return operation{method: http.MethodPut, path: path} }
func remove(path string) operation {
	return operation{method: http.MethodDelete, path: path}
}
