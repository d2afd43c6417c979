package agentapi

import (
	"errors"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

func TestLimiter(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	l := newLimiter[string](3, time.Second)
	try := func() (retry int) {
		t.Helper()
		err := l.check("a", now, "too often")
		var f *fault.Error
		if err == nil {
			l.spend("a", now)
			return 0
		}
		if !errors.As(err, &f) || f.Code != fault.RateLimited {
			t.Fatal(err)
		}
		return f.Details[retryAfter].(int)
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
	if err := l.check("b", now, ""); err != nil {
		t.Errorf("another one: %v", err)
	}
	for i := range 2 * mostLimited {
		l.spend(string(rune(i)), now)
	}
	if len(l.whole) > mostLimited {
		t.Errorf("%d are remembered", len(l.whole))
	}
}

func TestClientAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1/32", "[::ffff:192.0.2.1]:1": "192.0.2.1/32", "[2001:db8::1%eth0]:1": "2001:db8::/64", "@": "invalid Prefix",
	} {
		if got := clientAddress(remote).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
