package main

import (
	"os"
	"strings"
	"testing"
)

// A token that others may read is told of, whichever way the file got its permissions.
func TestContextsThatOthersMayRead(t *testing.T) {
	for _, name := range []string{"METAL_URL", "METAL_TOKEN", "METAL_TOKEN_FILE", "METALCTL_CONTEXT"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	path, err := contextsPath()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kept  target
		mode  os.FileMode
		tells bool
	}{
		{target{URL: "https://x", Token: "metal_x"}, 0o600, false},
		{target{URL: "https://x", Token: "metal_x"}, 0o640, true},
		{target{URL: "https://x", Token: "metal_x"}, 0o604, true},
		{target{URL: "https://x", TokenFile: "/nowhere"}, 0o644, false},
	} {
		if err := (contexts{Current: "x", Contexts: map[string]target{"x": c.kept}}).write(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		a, _, said := testApp()
		if got, err := a.target(); err != nil || got.URL != "https://x" {
			t.Errorf("%+v, %v", got, err)
		}
		if tells := strings.Contains(said.String(), "chmod 600 "+path); tells != c.tells {
			t.Errorf("%v with mode %o: %q", c.kept, c.mode, said)
		}
	}
}
