package fault_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/better-compute/metal/domain/fault"
)

func TestBounded(t *testing.T) {
	const most = 32
	for in, want := range map[string]string{
		"":                                       "",
		"short":                                  "short",
		"not \xff text":                          "not \uFFFD text",
		strings.Repeat("a", most):                strings.Repeat("a", most),
		strings.Repeat("a", most+1):              strings.Repeat("a", 22) + " … [cut]",
		strings.Repeat("ü", most):                strings.Repeat("ü", 11) + " … [cut]",
		"a" + strings.Repeat("\U0001F600", most): "a" + strings.Repeat("\U0001F600", 5) + " … [cut]",
	} {
		got := fault.Bounded(in, most)
		if got != want || len(got) > most || !utf8.ValidString(got) {
			t.Errorf("%q: %q (%d bytes), want %q", in, got, len(got), want)
		}
	}
}
