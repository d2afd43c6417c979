package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/tenant"
)

// feedReader is one open stream.
type feedReader struct {
	t     *testing.T
	lines *bufio.Reader
	close func()
}

// message is one block of a stream: its fields, or a comment.
type message struct {
	id, event, data, comment, retry string
}

func (w *world) follow(t *testing.T, path string, o ...option) *feedReader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+path, nil))(t)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	for _, set := range o {
		set(r)
	}
	res, err := w.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, headers %v", res.StatusCode, res.Header)
	}
	f := &feedReader{t: t, lines: bufio.NewReader(res.Body), close: cancel}
	t.Cleanup(f.close)
	if first := f.next(); first.retry != "2000" {
		t.Fatalf("the stream begins with %+v", first)
	}
	return f
}

// read takes one block. io.EOF at the end.
func (f *feedReader) read() (message, error) {
	var m message
	for {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			return m, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return m, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			m.comment = value
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		case "retry":
			m.retry = value
		default:
			return m, fmt.Errorf("field %q", line)
		}
	}
}

func (f *feedReader) next() message {
	f.t.Helper()
	m, err := f.read()
	if err != nil {
		f.t.Fatalf("the stream broke off: %v", err)
	}
	return m
}

// event takes the next event, passing over heartbeats and word of how far the log was read.
func (f *feedReader) event() contract.Event {
	f.t.Helper()
	for {
		m := f.next()
		if m.comment != "" || m.id != "" && m.data == "" {
			continue
		}
		var e contract.Event
		if err := json.Unmarshal([]byte(m.data), &e); err != nil {
			f.t.Fatalf("%v in %+v", err, m)
		}
		if m.id != decimal(e.Position) || m.event != e.Type {
			f.t.Fatalf("%+v", m)
		}
		return e
	}
}

func TestFeedFollowsAndResumes(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	live := w.follow(t, "/v1/events?type=node.*")
	n := w.enroll(e.pool, with("X-Request-ID", "r-1"))
	first, second := live.event(), live.event()
	if first.Type != "node.enrolled" || second.Type != "node.provision.enrolling" || second.Position != n.Position ||
		first.Tenant != e.tenant || first.Subject != "node/"+n.ID || first.RequestID != "r-1" || len(first.Data) == 0 {
		t.Fatalf("%+v %+v", first, second)
	}
	// From anywhere, everything after comes exactly once, whether from the log or from what the hub holds.
	head := must(w.store.Head(t.Context()))(t)
	for _, from := range []uint64{0, 1, first.Position - 1, first.Position, uint64(head)} {
		f := w.follow(t, "/v1/events?after=999", with("Last-Event-ID", decimal(from)))
		w.post("/v1/nodes/"+n.ID+"/cordon", nil).want(200)
		w.post("/v1/nodes/"+n.ID+"/uncordon", nil).want(200)
		end := uint64(must(w.store.Head(t.Context()))(t))
		for want := from + 1; want <= end; want++ {
			if got := f.event(); got.Position != want {
				t.Fatalf("from %d: position %d, want %d", from, got.Position, want)
			}
		}
		f.close()
	}
	w.eventually("nobody follows but one", func() bool { open, _ := w.seen.counts(); return open == 1 })
}

func TestFeedFilters(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	f := w.follow(t, "/v1/events", as(mine.token))
	g := w.follow(t, "/v1/events?after=0&type=node.enrolled,pool.*&tenant="+mine.tenant, as(mine.token))
	for _, want := range []string{"pool.created"} {
		if e := g.event(); e.Type != want || e.Tenant != mine.tenant {
			t.Fatalf("%+v", e)
		}
	}
	w.enroll(theirs.pool)
	n := w.enroll(mine.pool)
	for _, feed := range []*feedReader{f, g} {
		for {
			e := feed.event()
			if e.Tenant != mine.tenant {
				t.Fatalf("an event of another tenant: %+v", e)
			}
			if e.Type == "node.enrolled" {
				break
			}
		}
	}
	h := w.follow(t, "/v1/events?after=0&subject=node/"+n.ID)
	if e := h.event(); e.Subject != "node/"+n.ID {
		t.Fatalf("%+v", e)
	}
}

// A filter that lets nothing through leaves a reader without any event to know by that it has seen everything.
func TestFeedTellsHowFarItRead(t *testing.T) {
	w := start(t)
	w.estate("acme")
	last := w.get("/v1/nodes").want(200).header.Get(contract.HeaderPosition)
	for _, query := range []string{"?after=0&type=no.such", "?after=0&type=no.such&subject=node/none"} {
		f := w.follow(t, "/v1/events"+query)
		for f.next().id != last {
			continue
		}
	}
}

func TestFeedRefuses(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	for _, query := range []string{"?after=999999", "?after=x", "?after=-1", "?after=%2B1"} {
		w.get("/v1/events" + query).issues("query.after")
	}
	w.get("/v1/events", with("Last-Event-ID", "999999")).issues("header.Last-Event-ID")
	w.get("/v1/events?tenant=x").issues("query.tenant")
	w.get("/v1/events?color=red").issues("query.color")
	for range mostFollowers {
		w.follow(t, "/v1/events", as(e.token))
	}
	w.get("/v1/events", as(e.token)).problem(http.StatusTooManyRequests, "RATE_LIMITED")
	w.follow(t, "/v1/events")
}

func TestFeedBeats(t *testing.T) {
	w := start(t)
	w.api.heartbeat = 5 * time.Millisecond
	f := w.follow(t, "/v1/events")
	for beats := 0; beats < 3; {
		switch m := f.next(); {
		case m.comment == "heartbeat":
			beats++
		case m.id == "" || m.data != "": // word of how far the log was read may come between
			t.Fatalf("%+v", m)
		}
	}
}

// A stream ends when its credential does, before anything later is shown.
func TestFeedEndsWithItsCredential(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	f := w.follow(t, "/v1/events", as(e.token))
	w.post("/v1/principals/"+e.principal+"/disable", nil).want(200)
	w.enroll(e.pool)
	if m, err := f.read(); err == nil {
		t.Fatalf("%+v came after the credential ended", m)
	}
}

// A binding that is taken away narrows a running stream at once.
func TestFeedIsNarrowed(t *testing.T) {
	w := start(t)
	one, two := w.estate("acme"), w.estate("globex")
	p, token := w.caller(one.tenant, "tenant", one.tenant, "compute:events:read")
	w.post("/v1/principals/"+p+"/bindings", contract.NewBinding{
		Actions: []string{"compute:events:read"}, Scope: contract.Scope{Kind: "tenant", ID: two.tenant},
	}).want(201)
	f := w.follow(t, "/v1/events?type=node.enrolled", as(token))
	w.enroll(two.pool)
	if e := f.event(); e.Tenant != two.tenant {
		t.Fatalf("%+v", e)
	}
	bindings := into[contract.Principal](w.get("/v1/principals/" + p)).Bindings
	w.send("DELETE", "/v1/principals/"+p+"/bindings/"+bindings[1].ID, nil).want(200)
	w.enroll(two.pool)
	w.enroll(one.pool)
	if e := f.event(); e.Tenant != one.tenant {
		t.Fatalf("%+v", e)
	}
}

// A reader that takes nothing is cut off; the others and the writer do not notice.
func TestFeedCutsSlowReadersOff(t *testing.T) {
	w := start(t)
	w.api.writing = 300 * time.Millisecond
	e := w.estate("acme")
	w.api.hub.mu.Lock()
	w.api.hub.most = 64
	w.api.hub.mu.Unlock()
	quick := w.follow(t, "/v1/events?type=node.cordon.set")
	slow := w.deaf(t)
	n := w.enroll(e.pool)
	reason := contract.Reason{Reason: strings.Repeat("x", 500)}
	w.eventually("the slow one is cut off", func() bool {
		w.post("/v1/nodes/"+n.ID+"/cordon", reason).want(200)
		if e := quick.event(); e.Type != "node.cordon.set" {
			t.Fatalf("%+v", e)
		}
		w.post("/v1/nodes/"+n.ID+"/uncordon", nil).want(200)
		_, cut := w.seen.counts()
		return cut == 1
	})
	_ = slow.Close()
}

// deaf opens a stream on a connection that holds nothing and is never read.
func (w *world) deaf(t *testing.T) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- there
	plain := http.Server{Handler: w.api, ReadHeaderTimeout: patience}
	go func() { _ = plain.Serve(pipes{conns}) }()
	t.Cleanup(func() { _ = plain.Close() })
	_, err := io.WriteString(here, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+adminToken+"\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	start := bufio.NewReaderSize(here, 16)
	for empty := 0; empty < 2; { // after the headers, and after the first chunk
		line, err := start.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			empty++
		}
	}
	return here
}

// pipes listens on connections in memory.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p.conns
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p.conns)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func TestFeedEndsWithTheHub(t *testing.T) {
	w := start(t)
	f := w.follow(t, "/v1/events")
	w.stopFeed()
	if _, err := f.read(); err == nil {
		t.Fatal("the stream goes on")
	}
	w.get("/v1/events").problem(http.StatusServiceUnavailable, "UNAVAILABLE")
}

// restorable is a log in whose place an older one can be put, as a restored backup is.
type restorable struct {
	event.Store
	mu sync.Mutex
}

func (r *restorable) now() event.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Store
}

func (r *restorable) restore(older event.Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Store = older
}

func (r *restorable) Head(ctx context.Context) (event.Position, error) { return r.now().Head(ctx) }

func (r *restorable) Changed(ctx context.Context, after event.Position) error {
	return r.now().Changed(ctx, after)
}

func (r *restorable) ReadAll(ctx context.Context, after event.Position, types []string, limit int,
) ([]event.Recorded, event.Position, error) {
	return r.now().ReadAll(ctx, after, types, limit)
}

func (r *restorable) Reached() event.Position {
	head, _ := r.now().Head(context.Background()) // it is in memory
	return head
}

// A log that was restored from a backup ends earlier than it was followed: what is written then has positions that were followed
// already. No follower takes its silence for a log at rest.
func TestHubFollowsARestoredLog(t *testing.T) {
	registry := must(commands.Registry())(t)
	fresh := func(tenants int) event.Store {
		log := memory.New(registry)
		for range tenants {
			made := tenant.Created{Tenant: id.Of[id.Tenant](uuid.Must(uuid.NewV7())), Name: "acme"}
			must(log.Append(t.Context(), tenant.StreamOf(made.Tenant), 0, event.Meta{}, made))(t)
		}
		return log
	}
	log := &restorable{Store: fresh(3)}
	h := newHub(log, nil, slog.New(slog.DiscardHandler))
	h.rest = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	defer running.Wait()
	defer stop()
	await := func(what string, holds func(look) bool, after event.Position) look {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			l := h.after(after)
			switch {
			case holds(l):
				return l
			case time.Now().After(end):
				t.Fatalf("never: %s: %+v", what, l)
			}
			select {
			case <-l.grown:
			case <-time.After(time.Millisecond):
			}
		}
	}
	before := await("the log is followed", func(l look) bool { return l.running && l.head == 3 }, 0)
	older := fresh(1)
	log.restore(older)
	after := await("the tail begins anew", func(l look) bool { return l.running && l.begun != before.begun }, 0)
	if after.head != 1 {
		t.Errorf("%+v", after)
	}
	made := tenant.Created{Tenant: id.Of[id.Tenant](uuid.Must(uuid.NewV7())), Name: "later"}
	must(older.Append(t.Context(), tenant.StreamOf(made.Tenant), 0, event.Meta{}, made))(t)
	await("what is written then is there", func(l look) bool { return len(l.events) == 1 && l.head == 2 }, 1)
}

// A follower of a tail that began anew ends: its caller asks again from where it is, and learns that the log ends before.
func TestFeedEndsWithItsTail(t *testing.T) {
	w := start(t)
	f := w.follow(t, "/v1/events")
	w.api.hub.signal(func() { w.api.hub.begun++ })
	for {
		m, err := f.read()
		switch {
		case err != nil:
			return
		case m.comment != "": // it had time for a heartbeat
			t.Fatal("the stream goes on")
		}
	}
}

func TestHubKeepsTheNewest(t *testing.T) {
	h := newHub(nil, nil, nil)
	h.most = 3
	for p := event.Position(1); p <= 7; p++ {
		h.add([]event.Recorded{{Position: p}}, p)
	}
	if l := h.after(4); l.missed || len(l.events) != 3 || l.events[0].Position != 5 || l.head != 7 {
		t.Fatalf("%+v", l)
	}
	if l := h.after(3); !l.missed {
		t.Fatalf("%+v", l)
	}
	if l := h.after(7); l.missed || len(l.events) != 0 {
		t.Fatalf("%+v", l)
	}
}

// Large events do not fill the memory: the ring is bounded by what they hold, too.
func TestHubIsBoundedByBytes(t *testing.T) {
	h := newHub(nil, nil, nil)
	data := make([]byte, event.MaxEventBytes)
	for p := event.Position(1); p <= 2*ringEvents; p++ {
		h.add([]event.Recorded{{Position: p, Data: data}}, p)
		if held := len(h.events) * len(data); held > 2*ringBytes || held == 0 {
			t.Fatalf("%d bytes after %d events", held, p)
		}
		if l := h.after(p - 1); l.missed || len(l.events) != 1 || !h.after(h.floor-1).missed && h.floor > 0 {
			t.Fatalf("%+v", l)
		}
	}
}
