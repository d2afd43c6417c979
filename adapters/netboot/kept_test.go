package netboot_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/fault"
)

// A machine that is on its way to boot finds its entry also after the site agent was started anew; a token leaves once.
func TestEntriesOutliveTheProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "boot-entries.json")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	open := func() *netboot.Entries {
		t.Helper()
		e, err := netboot.OpenEntries(file, clock)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := open()
	for _, entry := range []netboot.Entry{
		{NodeID: "node_1", MACs: []string{"02:00:00:00:00:01"}, Token: "one", ExpiresAt: now.Add(time.Hour)},
		{NodeID: "node_2", MACs: []string{"02:00:00:00:00:02"}, Token: "two", ExpiresAt: now.Add(time.Minute)},
		{NodeID: "node_3", MACs: []string{"02:00:00:00:00:03"}, Token: "three", ExpiresAt: now.Add(time.Hour)},
	} {
		entry.Kernel, entry.Initrd = "vmlinuz", "initrd.img"
		if err := first.Set(entry); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Clear("node_3"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}

	now = now.Add(2 * time.Minute)
	second := open()
	_, ref, ok := second.Find("02-00-00-00-00-01")
	if !ok {
		t.Fatal("the entry is gone")
	}
	for _, gone := range []string{"02:00:00:00:00:02", "02:00:00:00:00:03"} {
		if _, _, ok := second.Find(gone); ok {
			t.Errorf("%s is there", gone)
		}
	}
	if token, err := second.TakeToken(ref, []string{"02:00:00:00:00:01"}); err != nil || token != "one" {
		t.Errorf("%q, %v", token, err)
	}
	if _, err := open().TakeToken(ref, []string{"02:00:00:00:00:01"}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the token was given again: %v", err)
	}
}

// A disk that is full spends no token and leaves no entry of an order that has failed.
func TestEntriesThatCannotBeKept(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "state")
	entries, err := netboot.OpenEntries(filepath.Join(directory, "boot-entries.json"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(node, mac string) netboot.Entry {
		return netboot.Entry{
			NodeID: node, MACs: []string{mac}, Kernel: "vmlinuz", Initrd: "initrd.img", Token: "of " + node,
			ExpiresAt: time.Now().Add(time.Hour),
		}
	}
	first, second := "02:00:00:00:00:01", "02:00:00:00:00:02"
	if err := entries.Set(entry("node_1", first)); err != nil {
		t.Fatal(err)
	}
	_, ref, _ := entries.Find(first)
	if err := os.Rename(directory, directory+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(directory, nil, 0o600); err != nil { // where the directory was
		t.Fatal(err)
	}
	if err := entries.Set(entry("node_2", second)); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("got %v", err)
	}
	if _, _, ok := entries.Find(second); ok {
		t.Error("the entry of an order that failed is there")
	}
	token, err := entries.TakeToken(ref, []string{first})
	if token != "" || fault.CodeOf(err) != fault.Unavailable || strings.Contains(err.Error(), directory) {
		t.Errorf("%q, %v", token, err)
	}
	if err := errors.Join(os.Remove(directory), os.Rename(directory+".away", directory)); err != nil {
		t.Fatal(err)
	}
	if token, err := entries.TakeToken(ref, []string{first}); token != "of node_1" || err != nil {
		t.Errorf("the second time: %q, %v", token, err)
	}
}

func TestAFileOfEntriesThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot-entries.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := netboot.OpenEntries(file, time.Now); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("got %v", err)
	}
}
