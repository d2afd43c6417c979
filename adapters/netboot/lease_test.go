package netboot_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/fault"
)

// leased is one of a site's boot servers.
type leased struct {
	*netboot.Server
	url string
}

func newLeased(t *testing.T, c *clock) leased {
	t.Helper()
	s := &netboot.Server{
		Entries: netboot.NewEntries(c.now), Lease: netboot.NewLease(c.now), Gateway: "https://gw:8444", CA: strings.Repeat("a", 64),
		Files: fstest.MapFS{"vmlinuz": {Data: []byte("kernel")}}, Loaders: fstest.MapFS{"snponly.efi": {Data: []byte("iPXE")}},
		Logger: slog.New(slog.DiscardHandler),
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.URL = server.URL
	return leased{s, server.URL}
}

func status(t *testing.T, url string) int {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode
}

// Without the lease nothing begins to boot here, and nobody is sent on; when the time is over by this clock, it is over.
func TestAServerWithoutTheLeaseIsSilent(t *testing.T) {
	c := &clock{t: time.Now()}
	s := newLeased(t, c)
	e := entry(c)
	if err := s.Entries.Set(e); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, known, unknown, loader, file int) {
		t.Helper()
		for path, want := range map[string]int{
			"/boot/" + mac: known, "/boot/02:00:00:00:00:99": unknown, "/ipxe/snponly.efi": loader, "/files/vmlinuz": file,
		} {
			if got := status(t, s.url+path); got != want {
				t.Errorf("%s: %s is answered with %d, not %d", when, path, got, want)
			}
		}
	}
	none := netboot.Boot{Site: s.url, Ref: "none"}
	token := func(b netboot.Boot) fault.Code {
		_, err := netboot.FetchToken(t.Context(), http.DefaultClient, b, []string{mac}, "")
		return fault.CodeOf(err)
	}
	expect("never held", 503, 503, 503, 200)
	if got := token(none); got != fault.Unavailable {
		t.Errorf("a token without the lease: %s", got)
	}
	s.Lease.Hold(c.now().Add(9*time.Second), false, nil)
	expect("not complete", 200, 503, 200, 200)
	if got := token(none); got != fault.Unavailable {
		t.Errorf("an unknown token before everything is there: %s", got)
	}
	s.Lease.Hold(c.now().Add(9*time.Second), true, nil)
	expect("complete", 200, 200, 200, 200)
	if got := token(none); got != fault.NotFound {
		t.Errorf("an unknown token: %s", got)
	}
	held := script(t, s.url, mac)
	c.advance(9 * time.Second)
	expect("lapsed", 503, 503, 503, 200)
	if got := token(held); got != fault.Unavailable {
		t.Errorf("a token after it lapsed: %s", got)
	}
	s.Lease.Hold(c.now().Add(9*time.Second), true, nil)
	s.Lease.Lose()
	expect("lost", 503, 503, 503, 200)
	s.Lease.Hold(c.now().Add(9*time.Second), true, nil)
	if got := token(held); got != "" {
		t.Errorf("the token that nobody fetched meanwhile: %s", got)
	}
}

// A machine that got its script from one server gets its token from the one that has the lease by then, whichever is alive; once
// at each.
func TestAMachineGoesOnAtAnotherServer(t *testing.T) {
	c := &clock{t: time.Now()}
	one, two := newLeased(t, c), newLeased(t, c)
	all := []string{one.url, two.url}
	if err := one.Entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	one.Lease.Hold(c.now().Add(time.Minute), true, all)
	boot := script(t, one.url, mac)
	if boot.Site != one.url+","+two.url {
		t.Errorf("it is told of %s", boot.Site)
	}
	one.Lease.Lose()
	fetch := func() (string, fault.Code) {
		token, err := netboot.FetchToken(t.Context(), http.DefaultClient, boot, []string{mac}, "")
		return token, fault.CodeOf(err)
	}
	if _, code := fetch(); code != fault.Unavailable {
		t.Errorf("while nobody has the lease: %s", code)
	}
	two.Lease.Hold(c.now().Add(time.Minute), false, all)
	if err := two.Entries.Begin(2); err != nil {
		t.Fatal(err)
	}
	if _, code := fetch(); code != fault.Unavailable {
		t.Errorf("before the entry is there: %s", code)
	}
	if err := two.Entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	if token, code := fetch(); token != "the-token" {
		t.Errorf("%q, %s", token, code)
	}
	two.Lease.Hold(c.now().Add(time.Minute), true, all)
	if _, code := fetch(); code != fault.NotFound { // the first one's word, which knows nothing, does not count
		t.Errorf("once more: %s", code)
	}
	if err := two.Entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	if !script(t, two.url, mac).Exit {
		t.Error("an entry whose token was fetched is back")
	}
}

// A term of the lease begins without any entry; the same term goes on with what is kept, also after the process was started anew.
func TestTerms(t *testing.T) {
	c := &clock{t: time.Now()}
	file := filepath.Join(t.TempDir(), "boot-entries.json")
	open := func() *netboot.Entries {
		t.Helper()
		e, err := netboot.OpenEntries(file, c.now)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	begin := func(e *netboot.Entries, term int64) {
		t.Helper()
		if err := e.Begin(term); err != nil {
			t.Fatal(err)
		}
	}
	has := func(e *netboot.Entries) bool { _, _, ok := e.Find(mac); return ok }
	e := open()
	begin(e, 3)
	if err := e.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	e = open()
	if begin(e, 3); !has(e) {
		t.Error("the same term has lost the entry")
	}
	if begin(e, 5); has(e) {
		t.Error("another term has the entry")
	}
	if e = open(); has(e) {
		t.Error("it is back")
	}
	begin(e, 5)
	if err := e.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	_, ref, _ := e.Find(mac)
	if _, err := e.TakeToken(ref, []string{mac}); err != nil {
		t.Fatal(err)
	}
	e = open()
	begin(e, 7)
	if err := e.Set(entry(c)); err != nil || has(e) {
		t.Errorf("a token that was fetched can be fetched again: %v", err)
	}
	c.advance(2 * time.Hour)
	if err := e.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
}
