package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/fault"
)

// readFaults reads a YAML list of faults, and tells every one that is wrong.
func readFaults(file string) ([]sim.Fault, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "can't read %s: %v", file, err).WithRemedy("name a file that can be read")
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "%s is not YAML: %v", file, err).WithRemedy("correct it")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(asJSON, &list); err != nil {
		return nil, fault.New(fault.InvalidConfig, "%s is not a list of faults", file).WithRemedy("begin each fault with '- '")
	}
	faults := make([]sim.Fault, 0, len(list))
	var issues []fault.Issue
	for i, raw := range list {
		f, err := sim.DecodeFault(bytes.NewReader(raw))
		if err != nil {
			issues = append(issues, inFile(file, i, err).Issues...)
		}
		faults = append(faults, f)
	}
	if len(issues) > 0 {
		return nil, fault.Invalid(issues...)
	}
	return faults, nil
}

// inFile says which fault of a file an error is about.
func inFile(file string, i int, err error) *fault.Error {
	at := fmt.Sprintf("%s[%d]", file, i)
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Issues) == 0 {
		return fault.Invalid(fault.Issue{Path: at, Message: err.Error()})
	}
	var issues []fault.Issue
	for _, issue := range f.Issues {
		issues = append(issues, fault.Issue{Path: at + "." + issue.Path, Message: issue.Message})
	}
	return fault.Invalid(issues...)
}
