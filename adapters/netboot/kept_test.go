package netboot_test

import (
	"os"
	"path/filepath"
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

func TestAFileOfEntriesThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot-entries.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := netboot.OpenEntries(file, time.Now); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("got %v", err)
	}
}
