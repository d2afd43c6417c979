package main

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/metal/cmd/program"
)

// A ramdisk trusts whom it is told to, else whom this system trusts. Nothing but certificates of a file goes into it.
func TestWhomARamdiskTrusts(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, blocks ...*pem.Block) string {
		var text []byte
		for _, b := range blocks {
			text = append(append(text, "# a comment\n"...), pem.EncodeToMemory(b)...)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := &pem.Block{Type: "CERTIFICATE", Bytes: []byte("1")}, &pem.Block{Type: "CERTIFICATE", Bytes: []byte("2")}
	both := file("both", one, &pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}, two)
	for _, test := range []struct {
		name, given string
		want        []byte
		issue       string
	}{
		{"a file", both, append(pem.EncodeToMemory(one), pem.EncodeToMemory(two)...), ""},
		{"nobody", "none", nil, ""},
		{"a file without any", file("key", &pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}), nil, "no certificate"},
		{"no file", filepath.Join(dir, "gone"), nil, "gone"},
	} {
		w := &program.Issues{}
		c := ramdiskConfig{certificates: test.given}
		got := c.trusted(w)
		told := ""
		for _, i := range issuesOf(w.Err()) {
			told += i.Path + ": " + i.Message
		}
		if !bytes.Equal(got, test.want) || (told != "") != (test.issue != "") || !strings.Contains(told, test.issue) {
			t.Errorf("%s: %q, %s", test.name, got, told)
		}
	}
	c, w := ramdiskConfig{}, &program.Issues{}
	got := c.trusted(w)
	if (len(got) > 0) != (c.certificates != noCertificates) || w.Err() != nil {
		t.Errorf("this system's are %d bytes of %q, %v", len(got), c.certificates, w.Err())
	}
}
