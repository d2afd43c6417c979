package profile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var durationForm = regexp.MustCompile(`^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$`)

const durationHint = "is not a length of time such as 90s, 5m or 1h30m"

// ParseDuration reads 90s, 5m, 1h30m.
func ParseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || text == "" || !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%q %s", cut(text), durationHint)
	}
	return Duration(d), nil
}

// String writes the duration without units that are zero.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the text form.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a length of time is written as text, such as 90s: %w", err)
	}
	parsed, err := ParseDuration(text)
	*d = parsed
	return err
}

// MarshalJSON writes a policy as a string, a step as an object.
func (o OnFailure) MarshalJSON() ([]byte, error) {
	if o.Step != nil {
		return json.Marshal(o.Step)
	}
	return json.Marshal(o.Policy)
}

// UnmarshalJSON reads either form.
func (o *OnFailure) UnmarshalJSON(data []byte) error {
	if isObject(data) {
		o.Policy, o.Step = PolicyFail, &Step{}
		return json.Unmarshal(data, o.Step)
	}
	o.Step = nil
	return json.Unmarshal(data, &o.Policy)
}

func isObject(raw json.RawMessage) bool {
	text := strings.TrimLeft(string(raw), " \t\r\n")
	return strings.HasPrefix(text, "{")
}

// cut bounds what an error repeats of an input.
func cut(text string) string {
	const most = 80
	text = string([]rune(text))
	if len(text) <= most {
		return text
	}
	return string([]rune(text)[:most/4]) + "…"
}
