package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/metal/cmd/program"
)

func TestInstalledConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"gateway":"https://gw.example:8444","caSha256":"` + strings.Repeat("ab", 32) + `","token":"jtk_1.secret","nodeId":"node_1"}`)
	var c config
	w := &program.Issues{}
	if token := c.readInstalled(file, w); token != "jtk_1.secret" || c.gateway != "https://gw.example:8444" || c.ca != strings.Repeat("ab", 32) || w.Err() != nil {
		t.Errorf("%q, %+v, %v", token, c, w.Err())
	}
	c = config{gateway: "https://other.example:8444"}
	c.readInstalled(file, w)
	if c.gateway != "https://other.example:8444" {
		t.Errorf("an option did not go before the file: %s", c.gateway)
	}
	write(`{"token":"jtk_1.secret"`)
	w = &program.Issues{}
	c.readInstalled(file, w)
	if err := w.Err(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	w = &program.Issues{}
	c.readInstalled(filepath.Join(dir, "none"), w)
	if w.Err() == nil {
		t.Error("a file that is not there was taken")
	}
}
