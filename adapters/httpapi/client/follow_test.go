package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

func sends(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(events, ""))
	}
}

func sse(position int) string {
	const form = "id: %d\nevent: node.enrolled\ndata: {\"position\":%d,\ndata: \"type\":\"node.enrolled\"}\n\n"
	return fmt.Sprintf(form, position, position)
}

func positions(t *testing.T, c *Client, f Feed, count int) []uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []uint64
	for e, err := range c.Follow(ctx, f) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Position); len(got) == count {
			break
		}
	}
	return got
}

func TestFollowerResumesAfterWhatItWasGiven(t *testing.T) {
	c, s := scripted(t,
		sends("retry: 2000\n\n", ": heartbeat\n\n", sse(8), sse(9), "id: 10\ndata: {\"posit"), // broken off within an event
		refuses(503, fault.Unavailable),
		hangsUp,
		sends(sse(10), "event: lagging\ndata: {\"position\":\"10\"}\n\n"),
		sends(sse(11)))
	after := uint64(7)
	got := positions(t, c, Feed{After: &after, Subject: "node/n"}, 4)
	if diff := cmp.Diff([]uint64{8, 9, 10, 11}, got); diff != "" {
		t.Error(diff)
	}
	var asked []string
	for _, r := range s.came {
		asked = append(asked, r.Header.Get("Last-Event-ID")+" "+r.URL.RawQuery)
	}
	var want []string
	for _, position := range []string{"7", "9", "9", "9", "10"} {
		want = append(want, position+" subject=node%2Fn")
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

// A follower of what is new has a place to resume from even before the first event.
func TestFollowerFromNowOn(t *testing.T) {
	c, s := scripted(t, answers(`{"items":[]}`, contract.HeaderPosition, "40"), hangsUp, sends(sse(41)))
	if got := positions(t, c, Feed{}, 1); got[0] != 41 {
		t.Error(got)
	}
	for _, r := range s.came[1:] {
		if r.Header.Get("Last-Event-ID") != "40" {
			t.Errorf("asked after %q", r.Header.Get("Last-Event-ID"))
		}
	}
}

// One that wants no more than what there is ends at the last of it, also where its filter lets nothing through any more.
func TestFollowerUntil(t *testing.T) {
	after := uint64(7)
	for name, rest := range map[string][]string{
		"the event itself": {sse(10), sse(11)}, "a later event": {sse(11)}, "only word of it": {"id: 9\n\n", "id: 10\n\n"},
	} {
		c, _ := scripted(t, sends(append([]string{sse(8)}, rest...)...))
		want := []uint64{8}
		if name == "the event itself" {
			want = append(want, 10)
		}
		if diff := cmp.Diff(want, positions(t, c, Feed{After: &after, Until: 10}, 9)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestASilentStreamIsLeft(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	c, _ := scripted(t, silent, sends(sse(8)))
	c.silence = 50 * time.Millisecond
	after := uint64(7)
	if got := positions(t, c, Feed{After: &after}, 1); got[0] != 8 {
		t.Error(got)
	}
}

func TestFollowerEndsWithAVerdict(t *testing.T) {
	c, s := scripted(t, refuses(403, fault.Forbidden))
	after := uint64(7)
	for _, err := range c.Follow(t.Context(), Feed{After: &after}) {
		if fault.CodeOf(err) != fault.Forbidden {
			t.Error(err)
		}
	}
	if len(s.came) != 1 {
		t.Errorf("asked %d times", len(s.came))
	}
}

func TestFollowerEndsWithItsContext(t *testing.T) {
	c, _ := scripted(t, sends(sse(8)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := uint64(7)
	for _, err := range c.Follow(ctx, Feed{After: &after}) {
		if err != nil {
			t.Error(err)
		}
		cancel()
	}
}

func TestALineWithoutEndIsRefused(t *testing.T) {
	long := strings.NewReader("data: " + strings.Repeat("x", 2*maxSSELine))
	err := readSSE(long, func() {}, func(sseEvent) error { return nil })
	if !errors.Is(err, errLongLine) {
		t.Error(err)
	}
}

func FuzzSSE(f *testing.F) {
	f.Add("id: 1\nevent: a\ndata: {}\n\n")
	f.Add(":\n\ndata\ndata:\r\n\r\nid:\x00\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		err := readSSE(strings.NewReader(text), func() {}, func(e sseEvent) error {
			if strings.ContainsAny(e.id+e.kind, "\n") {
				t.Errorf("%q", e)
			}
			return nil
		})
		if err == nil {
			t.Error("a stream ends with an error")
		}
	})
}

func TestTheAuditLogIsResumed(t *testing.T) {
	line := func(p int) string { return fmt.Sprintf("{\"position\":%d,\"stream\":\"a-b\",\"data\":\"e30=\"}\n", p) }
	breaksOff := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, line(1)+line(2)+`{"position":3,"st`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	c, s := scripted(t, breaksOff, refuses(503, fault.Unavailable), answers(line(3)))
	events, err := Collect(c.AuditLog(t.Context(), 0), 0)
	if err != nil || len(events) != 3 || string(events[0].Data) != "{}" {
		t.Errorf("%d events, %v", len(events), err)
	}
	if got := s.came[2].URL.RawQuery; got != "after=2" {
		t.Errorf("resumed with %s", got)
	}
}
