package steps_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/processmanagers/steps"
)

// Whatever a profile's author writes, every step's check ends, says of everything that is wrong where and why, and takes only
// what is an object.
func FuzzInput(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[]`, `{"action":"on"}`, `{"duration":"1h","bytes":1e400}`, `{"disk":{"serial":1}}`, `{"url":"\u0000"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, with string) {
		c := shipped(t)
		for _, id := range c.IDs() {
			spec, _ := c.Find(id)
			wrong := spec.Check(json.RawMessage(with))
			for _, issue := range wrong {
				if issue.Message == "" {
					t.Errorf("%s: %q is wrong without a reason", id, issue.Path)
				}
			}
			var object map[string]json.RawMessage
			if len(wrong) == 0 && strings.TrimSpace(with) != "" && json.Unmarshal([]byte(with), &object) != nil {
				t.Errorf("%s takes %q", id, with)
			}
		}
	})
}

// However a template is written, a value adds neither lines nor placeholders to the document.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"", "{{a}}", "{{ a }}{{", "{{{a}}}", "x\n{{a}}\n"} {
		f.Add(seed, "value")
	}
	f.Add("{{a}}", "b\nc")
	f.Add("{{a}}", "{{a}}")
	f.Fuzz(func(t *testing.T, text, value string) {
		got, err := steps.RenderTemplate(text, map[string]string{"a": value})
		switch code := fault.CodeOf(err); {
		case err == nil:
			if strings.Count(string(got), "\n") > strings.Count(text, "\n") {
				t.Errorf("%q with %q has more lines: %q", text, value, got)
			}
		case code != fault.InvalidConfig && code != fault.InvalidInput:
			t.Errorf("%q with %q: %v", text, value, err)
		case len(value) > 8 && strings.Contains(err.Error(), value) && !strings.Contains(text, value):
			t.Errorf("the error tells the value: %v", err)
		}
	})
}
