package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/netboot/cache"
	"github.com/better-compute/metal/domain/agentcommand"
)

// A server that does not have an image, or has no more of it, is left for the next, which gives the rest.
func TestADownloadGoesOnElsewhere(t *testing.T) {
	const half = mib + 77
	content := pattern(2*mib + 9)
	status := func(code int) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		first func(w http.ResponseWriter, r *http.Request, n int) // nil: it is not there at all
		want  string                                              // what the second is asked for
	}{
		"has no images":       {status(http.StatusNotFound), ""},
		"takes no such image": {status(http.StatusForbidden), ""},
		"can't keep it":       {status(http.StatusServiceUnavailable), ""},
		"is not there":        {nil, ""},
		"has another": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("hello"))
		}, ""},
		"dies in between": {func(w http.ResponseWriter, r *http.Request, n int) {
			if n > 1 {
				panic(http.ErrAbortHandler)
			}
			http.ServeContent(&cut{w, half}, r, "", time.Time{}, bytes.NewReader(content))
		}, fmt.Sprintf("bytes=%d-", half)},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := newLibrary(t, content), newLibrary(t, content)
			if first.answer = c.first; c.first == nil {
				first.Close()
			}
			p := hasty
			p.Before = 20 * time.Millisecond
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			d := newDownload(t.Context(), client, []string{first.URL, second.URL}, int64(len(content)), func(float64, string) {},
				slog.New(slog.DiscardHandler), p)
			defer d.Close() //nolint:errcheck // it was read
			check(t, d.begin())
			got, err := io.ReadAll(d)
			isWhole(t, second, got, err)
			if asked := second.asked(); len(asked) != 1 || asked[0] != c.want || d.failure() != nil {
				t.Errorf("the second was asked for %q, %v", asked, d.failure())
			}
		})
	}
}

// store is where images come from. It notes who asks.
type store struct {
	*httptest.Server
	mu     sync.Mutex
	agents []string
}

func (s *store) asked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.agents)
}

// An image is fetched through the cache of the site, once for all machines; where the cache does not take it, from its source.
func TestAnImageComesFromTheSite(t *testing.T) {
	content := bytes.Repeat([]byte("image "), mib/2)
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	s := &store{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.agents = append(s.agents, r.URL.String())
		s.mu.Unlock()
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(s.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	images, err := cache.Open(cache.Options{
		Dir: t.TempDir(), Bytes: 64 * mib, From: []string{s.URL + "/kept/"}, Downloads: 1, Pause: time.Millisecond, Client: client,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	t.Cleanup(images.Close)
	server := &netboot.Server{Entries: netboot.NewEntries(time.Now), Images: images, Logger: slog.New(slog.DiscardHandler)}
	var mu sync.Mutex
	var told []string // what the site was asked for
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		told = append(told, r.URL.String())
		mu.Unlock()
		server.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(site.Close)

	for _, c := range []struct {
		path               string
		sites              []string
		fromSite, fromMost int // requests there, and to the source by then
	}{
		{"/kept/image", []string{site.URL}, 1, 1},
		{"/kept/image", []string{site.URL}, 2, 1},  // another machine
		{"/other/image", []string{site.URL}, 3, 2}, // which the cache does not fetch from
		{"/kept/image?token=hunter2", []string{site.URL}, 3, 3},
		{"/kept/image", nil, 3, 4},
	} {
		b := newBox()
		kinds := MachineHandlers(MachineDeps{Machine: b, Images: client, Sites: c.sites, Seed: func() uint64 { return 1 }})
		payload, err := json.Marshal(agentcommand.WriteImage{
			URL: s.URL + c.path, Digest: digest, Format: "raw", Bytes: int64(len(content)), ReadBack: true,
		})
		check(t, err)
		_, _, err = kinds[agentcommand.ImageWrite](t.Context(), orderOf(t, agentcommand.ImageWrite, string(payload)))
		mu.Lock()
		if err != nil || len(told) != c.fromSite || s.asked() != c.fromMost {
			t.Errorf("%s: %v; the site was asked for %q, the source for %q", c.path, err, told, s.agents)
		}
		mu.Unlock()
	}
}
