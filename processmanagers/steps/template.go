package steps

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Text is a template with placeholders such as {{hostname}}: nodeId, hostname, joinToken, controlPlaneUrl, caSha256, bcdUrl
// and bcdSha256. It suits formats in which a value can't be more than a value: build others as data, with Func.
type Text string

// Render fills the placeholders in.
func (t Text) Render(v Variables) ([]byte, error) { return RenderTemplate(string(t), v.Values()) }

// Func is a template as code.
type Func func(v Variables) ([]byte, error)

// Render calls it.
func (f Func) Render(v Variables) ([]byte, error) { return f(v) }

// Values are the variables under the names that a text template uses.
func (v Variables) Values() map[string]string {
	return map[string]string{
		"nodeId": v.NodeID, "hostname": v.Hostname, "joinToken": v.JoinToken,
		"controlPlaneUrl": v.GatewayURL, "caSha256": v.CASHA256, "bcdUrl": v.AgentURL, "bcdSha256": v.AgentSHA256,
	}
}

const opening, closing = "{{", "}}"

// RenderTemplate fills {{name}} placeholders in, spaces around the name being allowed. A value can never add a line or a
// placeholder: one with a line break or {{ is INVALID_INPUT. A placeholder without a value, or that is not closed, is
// INVALID_CONFIG. No error tells a value.
func RenderTemplate(text string, values map[string]string) ([]byte, error) {
	var out strings.Builder
	for {
		before, rest, more := strings.Cut(text, opening)
		out.WriteString(before)
		if !more {
			return []byte(out.String()), nil
		}
		name, after, closed := strings.Cut(rest, closing)
		if !closed {
			return nil, fault.New(fault.InvalidConfig, "the template has a {{ that is not closed").WithDetail("path", "template")
		}
		value, err := valueOf(strings.TrimSpace(name), values)
		if err != nil {
			return nil, err
		}
		out.WriteString(value)
		text = after
	}
}

func valueOf(name string, values map[string]string) (string, error) {
	value := values[name]
	switch {
	case value == "":
		const most = 40
		if len(name) > most {
			name = name[:most]
		}
		return "", fault.New(fault.InvalidConfig, "the template's placeholder %q has no value", name).
			WithDetail("path", "template").WithDetail("placeholder", name).
			WithRemedy("the placeholders are " + strings.Join(slices.Sorted(maps.Keys(values)), ", "))
	case strings.ContainsAny(value, "\n\r\u0085\u2028\u2029") || strings.Contains(value, opening):
		return "", fault.Invalid(fault.Issue{Path: name, Message: fmt.Sprintf("the value holds a line break or %s", opening)})
	}
	return value, nil
}
