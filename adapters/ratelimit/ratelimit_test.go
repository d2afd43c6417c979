package ratelimit

import (
	"errors"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestABurstThenOneEachRefill(t *testing.T) {
	now := noon
	l := New[string](3, time.Second, 10)
	try := func() (retry int) {
		t.Helper()
		err := l.Check("a", now, "too often")
		var f *fault.Error
		if err == nil {
			l.Spend("a", now)
			return 0
		}
		if !errors.As(err, &f) || f.Code != fault.RateLimited {
			t.Fatal(err)
		}
		return f.Details[fault.RetryAfter].(int)
	}
	for i, step := range []struct {
		later time.Duration
		want  int
	}{{0, 0}, {0, 0}, {0, 0}, {0, 1}, {500 * time.Millisecond, 1}, {500 * time.Millisecond, 0}, {0, 1}, {time.Hour, 0}, {0, 0}, {0, 0}, {0, 1}} {
		now = now.Add(step.later)
		if got := try(); got != step.want {
			t.Fatalf("step %d: wait %d s, want %d", i, got, step.want)
		}
	}
	if err := l.Check("b", now, ""); err != nil {
		t.Errorf("another one: %v", err)
	}
}

func TestAClockThatIsSetBack(t *testing.T) {
	l := New[string](2, time.Second, 3)
	l.Spend("a", noon)
	for i, step := range []struct {
		at   time.Time
		want time.Duration
	}{{noon, 0}, {noon.Add(-time.Hour), 0}, {noon.Add(-time.Hour), time.Second}, {noon.Add(-time.Hour + time.Second), 0}} {
		if got := max(0, l.wait("a", step.at)); got != step.want {
			t.Errorf("step %d: wait %s", i, got)
		}
		if i == 1 {
			l.Spend("a", step.at)
		}
	}
}

// However many were let in at once, nobody waits for longer than for the next; and the least recently used are forgotten first.
func TestItIsBounded(t *testing.T) {
	l := New[int](2, time.Second, 3)
	for range 9 {
		l.Spend(1, noon)
	}
	for _, later := range []time.Duration{0, 500 * time.Millisecond} {
		if got := l.wait(1, noon.Add(later)); got != time.Second-later {
			t.Errorf("after %s: wait %s", later, got)
		}
	}
	for i := 2; i < 6; i++ {
		l.Spend(i, noon)
	}
	l.Spend(4, noon)
	l.Spend(6, noon)
	if len(l.known) != 3 || l.order.Len() != 3 || l.wait(1, noon) != 0 || l.wait(3, noon) != 0 || l.wait(4, noon) <= 0 {
		t.Errorf("%d are remembered, %d in order", len(l.known), l.order.Len())
	}
}

func TestAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1/32", "[::ffff:192.0.2.1]:1": "192.0.2.1/32", "[2001:db8::1%eth0]:1": "2001:db8::/64",
		"[2001:db8::ffff:1]:6": "2001:db8::/64", "@": "invalid Prefix", "": "invalid Prefix", "host:1": "invalid Prefix",
	} {
		if got := Address(remote).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add("[fe80::1%eth0]:1")
	f.Fuzz(func(t *testing.T, remote string) {
		if p := Address(remote); p.IsValid() && p != p.Masked() {
			t.Errorf("%q: %s", remote, p)
		}
	})
}
