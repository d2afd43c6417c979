package cache_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/netboot/cache"
	"github.com/better-compute/metal/domain/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is where images come from. Its images are named by a letter and have a size; handle, if set, answers instead.
type store struct {
	*httptest.Server
	asked  atomic.Int32
	ranges sync.Map // what was asked for, by number
	handle func(w http.ResponseWriter, r *http.Request, n int32)
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.asked.Add(1)
		s.ranges.Store(n, r.Header.Get("Range"))
		if s.handle != nil {
			s.handle(w, r, n)
			return
		}
		name := filepath.Base(r.URL.Path)
		w.Header().Set("ETag", `"`+name+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image(name)))
	}))
	t.Cleanup(s.Close)
	return s
}

// image makes the bytes of an image: its name, a million times the letter.
func image(name string) []byte { return bytes.Repeat([]byte(name), 1_000_000/len(name)) }

func digest(name string) string {
	sum := sha256.Sum256(image(name))
	return hex.EncodeToString(sum[:])
}

func open(t *testing.T, s *store, dir string, size int64) *cache.Cache {
	t.Helper()
	var second atomic.Int64
	c, err := cache.Open(cache.Options{
		Dir: dir, Bytes: size, From: []string{s.URL + "/images"}, Downloads: 2, Pause: time.Millisecond, Client: s.Client(),
		Now: func() time.Time { return time.Unix(1_700_000_000+second.Add(1), 0) }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, c *cache.Cache, digest, from string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file, err := c.Get(ctx, digest, from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// has gets an image and checks that it is right.
func has(t *testing.T, c *cache.Cache, s *store, name string) {
	t.Helper()
	got, err := get(t, c, digest(name), s.URL+"/images/"+name)
	if err != nil || !bytes.Equal(got, image(name)) {
		t.Fatalf("%s: %d bytes, %v", name, len(got), err)
	}
}

func TestAnImageIsFetchedOnce(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	c := open(t, s, dir, 10<<20)
	for range 3 {
		has(t, c, s, "a")
	}
	if got, err := get(t, c, digest("a"), ""); err != nil || len(got) != 1_000_000 {
		t.Errorf("without a source: %v", err)
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, err := get(t, c, digest("b"), ""); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("not there, without a source: %v", err)
	}
	c.Close()
	if _, err := get(t, c, digest("b"), s.URL+"/images/b"); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("closed: %v", err)
	}
	again := open(t, s, dir, 10<<20)
	if got, err := get(t, again, digest("a"), ""); err != nil || len(got) != 1_000_000 {
		t.Errorf("after a restart: %v", err)
	}
}

// Any machine may ask for digests that nobody has. What waits to be fetched does not grow without end, and what is there is given.
func TestWhatWaitsToBeFetchedIsBounded(t *testing.T) {
	const most = 16
	s := newStore(t)
	c := open(t, s, t.TempDir(), 100<<20)
	has(t, c, s, "a")
	release := make(chan struct{})
	s.handle = func(_ http.ResponseWriter, r *http.Request, _ int32) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := 0
	for i := range 100 {
		sum := sha256.Sum256([]byte{byte(i)})
		if _, err := c.Get(gone, hex.EncodeToString(sum[:]), s.URL+"/images/b"); fault.CodeOf(err) == fault.RateLimited {
			refused++
		}
	}
	if refused != 100-most {
		t.Errorf("of 100, %d are refused", refused)
	}
	has(t, c, s, "a")
	close(release)
}

// Many who ask at once share one download, and none of them gets a byte before all are checked.
func TestManyShareADownload(t *testing.T) {
	s := newStore(t)
	release := make(chan struct{})
	s.handle = func(w http.ResponseWriter, r *http.Request, _ int32) {
		_, _ = w.Write(image("a")[:500_000])
		<-release
		_, _ = w.Write(image("a")[500_000:])
	}
	c := open(t, s, t.TempDir(), 10<<20)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Get(short, digest("a"), s.URL+"/images/a"); fault.CodeOf(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who does not wait: %v", err)
	}
	done := make(chan error, 20)
	for range cap(done) {
		go func() {
			file, err := c.Get(t.Context(), digest("a"), s.URL+"/images/a")
			if err == nil {
				err = file.Close()
			}
			done <- err
		}()
	}
	close(release)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// A source that breaks off is asked for the rest; so it is after a restart.
func TestADownloadGoesOn(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	s.handle = func(w http.ResponseWriter, r *http.Request, n int32) {
		w.Header().Set("ETag", `"a"`)
		if n <= 2 {
			w = &broken{ResponseWriter: w, left: 300_000}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image("a")))
	}
	c := open(t, s, dir, 10<<20)
	has(t, c, s, "a")
	for n, want := range map[int32]string{1: "", 2: "bytes=300000-", 3: "bytes=600000-"} {
		if got, _ := s.ranges.Load(n); got != want {
			t.Errorf("request %d asked for %q", n, got)
		}
	}
	c.Close()
	if err := os.Rename(filepath.Join(dir, digest("a")), filepath.Join(dir, digest("a")+".part")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, digest("a")+".part"), 700_000); err != nil {
		t.Fatal(err)
	}
	has(t, open(t, s, dir, 10<<20), s, "a")
	if got, _ := s.ranges.Load(int32(4)); got != "bytes=700000-" {
		t.Errorf("after a restart it asked for %q", got)
	}
}

// broken ends the connection after so many bytes.
type broken struct {
	http.ResponseWriter
	left int
}

func (b *broken) Write(p []byte) (int, error) {
	if len(p) > b.left {
		_, _ = b.ResponseWriter.Write(p[:b.left])
		_ = http.NewResponseController(b.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

// Parts that don't fit any more are thrown away: another file at the source, a source without ranges, damage here.
func TestAPartThatDoesNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		part   []byte
		handle func(w http.ResponseWriter, r *http.Request, n int32)
	}{
		"damaged":   {[]byte("damaged"), nil},
		"no ranges": {image("a")[:10], func(w http.ResponseWriter, _ *http.Request, _ int32) { _, _ = w.Write(image("a")) }},
		"too long":  {append(image("a"), 'x'), nil},
		"another part": {image("a")[:10], func(w http.ResponseWriter, r *http.Request, _ int32) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes 5-999999/1000000")
				w.WriteHeader(http.StatusPartialContent)
				return
			}
			_, _ = w.Write(image("a"))
		}},
		"all there": {image("a"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t), t.TempDir()
			s.handle = test.handle
			if err := os.WriteFile(filepath.Join(dir, digest("a")+".part"), test.part, 0o600); err != nil {
				t.Fatal(err)
			}
			has(t, open(t, s, dir, 10<<20), s, "a")
		})
	}
}

func TestWrongBytesAreNotServed(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	c := open(t, s, dir, 10<<20)
	if _, err := get(t, c, digest("b"), s.URL+"/images/a"); fault.CodeOf(err) != fault.DriverError {
		t.Errorf("another image: %v", err)
	}
	has(t, c, s, "b")
	c.Close()
	// Bytes that change on disk are found at the next start, and fetched again if it is known from where.
	path := filepath.Join(dir, digest("b"))
	damaged := image("b")
	damaged[500] ^= 1
	for range 2 {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		c = open(t, s, dir, 10<<20)
		if _, err := get(t, c, digest("b"), ""); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("damaged, without a source: %v", err)
		}
		has(t, c, s, "b")
		c.Close()
	}
	// So are files that somebody takes away.
	c = open(t, s, dir, 10<<20)
	has(t, c, s, "b")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	has(t, c, s, "b")
}

func TestWhatWasNotUsedMakesRoom(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	c := open(t, s, dir, 3_500_000)
	for _, name := range []string{"a", "b", "c", "a", "d"} { // b was not used for longest
		has(t, c, s, name)
	}
	there := func(c *cache.Cache, want string) {
		t.Helper()
		got := ""
		for _, name := range []string{"a", "b", "c", "d"} {
			if _, err := get(t, c, digest(name), ""); err == nil {
				got += name
			}
		}
		if got != want {
			t.Errorf("there are %s, not %s", got, want)
		}
	}
	if _, err := get(t, c, digest("b"), ""); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("b: %v", err)
	}
	there(c, "acd")
	file, err := c.Get(t.Context(), digest("c"), "") // c is used last
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c = open(t, s, dir, 1_500_000) // a smaller cache, and the order survives a restart
	there(c, "c")
	has(t, c, s, "a")
	there(c, "a")
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, image("c")) {
		t.Errorf("who reads an image that made room: %d bytes, %v", len(got), err)
	}
	_ = file.Close()
	if size := sizeOf(t, dir); size > 1_500_000 {
		t.Errorf("%d bytes are kept", size)
	}
}

func sizeOf(t *testing.T, dir string) (sum int64) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
}

// An image that is too large is refused, whether the source tells its size or not, and the others stay.
func TestTooLarge(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	s.handle = func(w http.ResponseWriter, r *http.Request, _ int32) {
		if strings.HasSuffix(r.URL.Path, "tells") {
			w.Header().Set("Content-Length", "1000000")
		}
		for range 10 {
			if _, err := w.Write(image("a")[:100_000]); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
	c := open(t, s, dir, 1<<20)
	has(t, c, s, "a")
	c.Close()
	c = open(t, s, dir, 500_000)
	for _, name := range []string{"tells", "tells-not"} {
		if _, err := get(t, c, digest("a"), s.URL+"/images/"+name); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "larger") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if size := sizeOf(t, dir); size > 500_000 {
		t.Errorf("%d bytes are kept", size)
	}
}
