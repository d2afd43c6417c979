package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/better-compute/metal/adapters/statefile"
)

func TestReplace(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "made", "here")
	path := filepath.Join(directory, "state.json")
	for _, text := range []string{"a first one that is long", "second"} {
		if err := statefile.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
}

// What can't be replaced stays as it was, and nothing is left beside it.
func TestReplaceFails(t *testing.T) {
	directory := t.TempDir()
	taken := filepath.Join(directory, "taken") // a directory that is not empty takes no file's place
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Replace(taken, []byte("x")); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Replace(filepath.Join(file, "below"), []byte("x")); err == nil {
		t.Error("a file was taken for a directory")
	}
}
