package linux

import (
	"slices"
	"testing"
)

// A list of processors comes from the kernel, in a tree that may be damaged: whatever it holds, what comes of it is in order
// and of a size that can be.
func FuzzNumbers(f *testing.F) {
	for _, list := range []string{"", "0", "0-3,8", "3-1", "0-99999999", "-1", "a", "0,,1", "0-1-2"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		got := numbers(list)
		if len(got) > 2<<14 || slices.ContainsFunc(got, func(n int) bool { return n < 0 || n >= 1<<14 }) {
			t.Errorf("%q gives %d numbers", list, len(got))
		}
	})
}

func TestNumbers(t *testing.T) {
	for list, want := range map[string][]int{
		"0-2,7": {0, 1, 2, 7}, "5": {5}, "": nil, "2-1": nil, "0-20000": nil, "x": nil, "1,": nil,
	} {
		if got := numbers(list); !slices.Equal(got, want) {
			t.Errorf("%q gives %v", list, got)
		}
	}
}
