package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/goccy/go-yaml"
)

// readFile reads JSON or YAML from a file, or from standard input where it is named -. A field that does not exist is
// an error. No error repeats what the file holds: it may be a secret.
func (a *app) readFile(name string, into any) error {
	raw, err := a.bytesOf(name)
	if err != nil {
		return err
	}
	asJSON, err := yaml.YAMLToJSON(raw) // JSON is YAML too
	if err != nil {
		return usage("%s is neither JSON nor YAML", name)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch):
		return usage("%s: %s is not of the kind %s", name, orElse(mismatch.Field, "the document"), mismatch.Type)
	}
	return usage("%s: %s", name, err) // an unknown field, by its name
}

func (a *app) bytesOf(name string) ([]byte, error) {
	if name == "-" {
		raw, err := io.ReadAll(a.in)
		if err != nil {
			return nil, usage("standard input cannot be read: %s", err)
		}
		return raw, nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, usage("%s", err)
	}
	return raw, nil
}
