package steps_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/profile"
)

var update = flag.Bool("update", false, "write the document of the steps again")

const document = "../../schema/steps.md"

// What people read of the shipped steps is made of their definitions.
func TestDocumentOfTheSteps(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Steps\n\nWhat a profile may `use`, made from the definitions: `go test ./processmanagers/steps -update`.\n")
	c := shipped(t)
	for _, id := range c.IDs() {
		spec, _ := c.Find(id)
		describe(t, &text, spec)
	}
	if *update {
		if err := os.WriteFile(document, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(written), text.String()); diff != "" {
		t.Errorf("%s is of other definitions (-written +defined): make golden\n%s", document, diff)
	}
}

func describe(t *testing.T, out *strings.Builder, spec profile.Spec) {
	t.Helper()
	fmt.Fprintf(out, "\n## %s\n\n%s\n\nRuns on `%s`", spec.ID, spec.Summary, spec.RunsOn)
	for _, relay := range spec.Relays {
		fmt.Fprintf(out, ", through `%s`", relay)
	}
	fmt.Fprintf(out, "; %s at most.", profile.Duration(spec.Timeout))
	if sends := slices.Concat([]string{spec.Command}, spec.Sends); len(strings.Join(sends, "")) > 0 {
		fmt.Fprintf(out, " Sends `%s`.", strings.Trim(strings.Join(sends, "`, `"), "`, "))
	}
	if spec.Rejoin {
		out.WriteString(" Needs `await: rejoin`.")
	}
	if spec.Cleanup != nil {
		fmt.Fprintf(out, " Cleans up with `%s`.", spec.Cleanup.Use)
	}
	out.WriteString("\n")
	var input struct {
		Properties map[string]struct {
			Type, Description string
			Enum              []string
		}
		Required []string
	}
	if err := json.Unmarshal(spec.Input, &input); err != nil {
		t.Fatal(err)
	}
	if len(input.Properties) > 0 {
		out.WriteString("\n| input | type | |\n|---|---|---|\n")
	}
	for _, name := range slices.Sorted(maps.Keys(input.Properties)) {
		p, notes := input.Properties[name], []string{}
		if slices.Contains(input.Required, name) {
			notes = append(notes, "needed")
		}
		if len(p.Enum) > 0 {
			notes = append(notes, strings.Join(p.Enum, ", "))
		}
		if p.Description != "" {
			notes = append(notes, p.Description)
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, p.Type, strings.Join(notes, "; "))
	}
}
