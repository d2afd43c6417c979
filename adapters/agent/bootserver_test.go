package agent

import (
	"log/slog"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/netboot"
)

// The lease counts from when the poll was sent, not from when it was answered; and an answer without it ends it.
func TestTheLeaseIsHeldFromWhenItWasAskedFor(t *testing.T) {
	now := time.Now()
	entries := netboot.NewEntries(func() time.Time { return now })
	a := &runner{log: slog.New(slog.DiscardHandler), Options: Options{
		Boot: &BootServer{URL: "http://boot", Entries: entries, Lease: netboot.NewLease(func() time.Time { return now })},
	}}
	held := func() bool { return a.Boot.Lease.Held() }
	if held() || a.Boot.offer().URL != "http://boot" {
		t.Error("it begins with the lease, or does not say where it would serve")
	}
	answer := &protocol.BootLease{Term: 1, Seconds: 9}
	a.bootHeard(answer, now.Add(-9*time.Second))
	if held() {
		t.Error("an answer that was long on its way makes the lease longer")
	}
	a.bootHeard(answer, now.Add(-8*time.Second))
	if !held() {
		t.Error("it is not held")
	}
	now = now.Add(time.Second)
	if held() {
		t.Error("it is held too long")
	}
	a.bootHeard(answer, now)
	if err := entries.Set(netboot.Entry{
		NodeID: "n", MACs: []string{"02:00:00:00:00:01"}, Kernel: "k", Initrd: "i", Token: "t", ExpiresAt: now.Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	a.bootHeard(nil, now)
	if held() {
		t.Error("it is held against the gateway's word")
	}
	a.bootHeard(answer, now)
	if _, _, ok := entries.Find("02:00:00:00:00:01"); !held() || !ok {
		t.Error("the same term has lost its entry")
	}
	a.bootHeard(&protocol.BootLease{Term: 2, Seconds: 9}, now)
	if _, _, ok := entries.Find("02:00:00:00:00:01"); !held() || ok {
		t.Error("another term has the entry")
	}
	none := &runner{}
	if none.bootHeard(answer, now); none.Boot.offer() != nil {
		t.Error("an agent without a boot server offers one")
	}
}
