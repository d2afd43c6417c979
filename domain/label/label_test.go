package label_test

import (
	"testing"

	"github.com/better-compute/metal/domain/label"
)

func TestHolds(t *testing.T) {
	labels := map[string]string{"nvswitch": "true", "gpu.model": "H100", "mig.capable": "false", "rack": ""}
	tests := map[string]bool{
		"nvswitch":                       true,
		"mig.capable":                    false,
		"!mig.capable":                   true,
		"absent":                         false,
		"!absent":                        true,
		"rack":                           true, // present, and not false
		"rack=":                          true,
		"absent=":                        false, // an absent label has no value, not an empty one
		"gpu.model=H100":                 true,
		"gpu.model = H100":               true,
		"gpu.model=h100":                 false,
		"gpu.model!=H100":                false,
		"gpu.model!=A100":                true,
		"absent!=A100":                   true,
		"nvswitch && gpu.model=H100":     true,
		"nvswitch&&!gpu.model":           false,
		"nvswitch && gpu.model=H100 && ": false,
		"":                               false,
		"  ":                             false,
		"&&":                             false,
		"!":                              false,
		"!!nvswitch":                     false,
		"nvswitch || rack":               false,
		"a=b=c":                          false,
	}
	for text, want := range tests {
		if got := label.Holds(text, labels); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for text, bad := range map[string]bool{
		"": false, " ": false, "a && !b && c=d && e!=f": false,
		"a && && b": true, "a b": true, "=x": true, "!=x": true, "a & b": true, "é": true, "a=!b": true,
	} {
		if _, err := label.Parse(text); (err != nil) != bad {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a", "!a", "a=b", "a!=b && c", "&&", "a=b=c", "! a"} {
		f.Add(seed, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		e, err := label.Parse(text)
		labels := map[string]string{key: value}
		if err != nil {
			if label.Holds(text, labels) {
				t.Fatalf("%q is no expression and holds", text)
			}
			return
		}
		again, err := label.Parse(e.String())
		if err != nil || again.String() != e.String() || again.Holds(labels) != e.Holds(labels) {
			t.Fatalf("%q became %q: %v", text, e, err)
		}
		if e.Empty() && e.Holds(labels) {
			t.Fatalf("%q parses to nothing and holds", text)
		}
	})
}
