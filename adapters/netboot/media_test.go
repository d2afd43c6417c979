package netboot_test

import (
	"bytes"
	"fmt"
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
)

// blankMedium is an image with a place for words, as bcd image build-ramdisk makes one.
func blankMedium(place, room int) []byte {
	b := bytes.Repeat([]byte{'.'}, 8192)
	copy(b, fmt.Sprintf("metal-medium 1 %d %d\n", place, room))
	copy(b[place:], strings.Repeat(" ", room))
	return b
}

func mediaServer(t *testing.T, entries *netboot.Entries, medium []byte) *netboot.Server {
	t.Helper()
	s := &netboot.Server{
		Entries: entries, Gateway: "https://gw:8444", CA: strings.Repeat("a", 64), URL: "http://machines", Logger: slog.New(slog.DiscardHandler),
		Files: fstest.MapFS{"vmlinuz": {Data: []byte("kernel")}},
	}
	if medium != nil {
		s.Files = fstest.MapFS{netboot.MediumFile: {Data: medium, ModTime: time.Unix(1, 0)}}
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.Media = server.URL + "/"
	return s
}

// words are what a medium tells its machine.
func words(t *testing.T, url string, place, room int) string {
	t.Helper()
	whole := fetch(t, url, http.StatusOK)
	if len(whole) != 8192 || whole[place-1] != '.' || whole[place+room] != '.' {
		t.Fatalf("the image of %d bytes is not the file but for its place", len(whole))
	}
	return whole[place:][:room]
}

func TestAVirtualDriveIsFilledForOneMachine(t *testing.T) {
	c := &clock{t: time.Now()}
	file := filepath.Join(t.TempDir(), "entries.json")
	entries, err := netboot.OpenEntries(file, c.now)
	if err != nil {
		t.Fatal(err)
	}
	const place, room = 3000, 300
	s := mediaServer(t, entries, blankMedium(place, room))
	if url := s.MediumURL("node_1"); url != "" {
		t.Errorf("a machine without an entry is offered %s", url)
	}
	if err := entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	url := s.MediumURL("node_1")
	if !strings.HasPrefix(url, s.Media+"media/") || !strings.HasSuffix(url, "/ramdisk.iso") {
		t.Fatalf("the image is at %s", url)
	}
	boot := script(t, s.Media, mac)
	told := netboot.ParseArguments(words(t, url, place, room))
	boot.Kernel, boot.Initrd, boot.Port, boot.Again = "", "", "", nil // of what comes over the network
	if fmt.Sprint(told) != fmt.Sprint(boot) || told.Ref == "" || told.Site != "http://machines" {
		t.Errorf("the drive tells\n%+v, the network\n%+v", told, boot)
	}
	if strings.Contains(url, boot.Ref) {
		t.Error("the reference is in the URL")
	}

	// Controllers read in parts, and look before they do.
	whole := fetch(t, url, http.StatusOK)
	for _, part := range [][2]int{{0, 99}, {place - 10, place + 20}, {place + 7, place + 9}, {place + room - 1, place + room}, {8000, 8191}} {
		if got := fetchPart(t, url, part[0], part[1]); got != whole[part[0]:part[1]+1] {
			t.Errorf("%v: %q", part, got)
		}
	}
	answer, err := http.Head(url)
	if err != nil || answer.StatusCode != http.StatusOK || answer.ContentLength != 8192 || answer.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("HEAD: %+v, %v", answer, err)
	}
	_ = answer.Body.Close()

	// The site's agent is started anew while the machine is on its way; then the machine has booted.
	again, err := netboot.OpenEntries(file, c.now)
	if err != nil {
		t.Fatal(err)
	}
	s.Entries = again
	if got := s.MediumURL("node_1"); got != url {
		t.Errorf("after a restart it is at %s, not %s", got, url)
	}
	if _, err := netboot.FetchToken(t.Context(), http.DefaultClient, withSite(told, s.Media), []string{mac}, ""); err != nil {
		t.Fatal(err)
	}
	fetch(t, url, http.StatusNotFound)
	if got := s.MediumURL("node_1"); got != "" {
		t.Errorf("the machine has booted, and is offered %s", got)
	}
}

func withSite(b netboot.Boot, site string) netboot.Boot {
	b.Site = site
	return b
}

func fetchPart(t *testing.T, url string, from, to int) string {
	t.Helper()
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to))
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusPartialContent {
		t.Errorf("%d-%d: %s, %v", from, to, answer.Status, err)
	}
	return string(text)
}

func TestAMediumIsOverWithItsEntry(t *testing.T) {
	for name, end := range map[string]func(*netboot.Entries, *clock) error{
		"cleared": func(e *netboot.Entries, _ *clock) error { return e.Clear("node_1") },
		"expired": func(_ *netboot.Entries, c *clock) error { c.advance(2 * time.Hour); return nil },
		"replaced": func(e *netboot.Entries, c *clock) error {
			next := entry(c)
			next.Token = "another-token"
			return e.Set(next)
		},
	} {
		c := &clock{t: time.Now()}
		entries := netboot.NewEntries(c.now)
		s := mediaServer(t, entries, blankMedium(3000, 300))
		if err := entries.Set(entry(c)); err != nil {
			t.Fatal(err)
		}
		url := s.MediumURL("node_1")
		fetch(t, url, http.StatusOK)
		if err := end(entries, c); err != nil {
			t.Fatal(err)
		}
		fetch(t, url, http.StatusNotFound)
		if name == "replaced" && s.MediumURL("node_1") == url {
			t.Error("two entries have one image")
		}
	}
}

func TestAnImageThatCanNotBeFilledIsNotOffered(t *testing.T) {
	taken := blankMedium(3000, 300)
	taken[3100] = 'x'
	for name, medium := range map[string][]byte{
		"none": nil, "another's": bytes.Repeat([]byte{0}, 40960), "short": []byte("metal-medium 1 1 1\n"), "taken": taken,
		"no room": blankMedium(3000, 100), "beyond its end": append([]byte("metal-medium 1 8000 300\n"), make([]byte, 8100)...),
		"too much": append([]byte("metal-medium 1 100 5000\n"), bytes.Repeat([]byte{' '}, 8000)...),
		"before":   append([]byte("metal-medium 1 -5 300\n"), bytes.Repeat([]byte{' '}, 8000)...),
	} {
		c := &clock{t: time.Now()}
		entries := netboot.NewEntries(c.now)
		s := mediaServer(t, entries, blankMedium(3000, 300))
		if err := entries.Set(entry(c)); err != nil {
			t.Fatal(err)
		}
		url := s.MediumURL("node_1")
		s.Files = fstest.MapFS{}
		if medium != nil {
			s.Files = fstest.MapFS{netboot.MediumFile: {Data: medium}}
		}
		if got := s.MediumURL("node_1"); got != "" {
			t.Errorf("%s: it is offered at %s", name, got)
		}
		fetch(t, url, http.StatusNotFound)
	}
}
