package cache_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/netboot/cache"
	"github.com/better-compute/metal/domain/fault"
)

func TestSourcesThatFail(t *testing.T) {
	s := newStore(t)
	c := open(t, s, t.TempDir(), 10<<20)
	for status, want := range map[int]struct {
		code  fault.Code
		tries int32
	}{
		http.StatusNotFound: {fault.DriverError, 1}, http.StatusForbidden: {fault.DriverError, 1},
		http.StatusServiceUnavailable: {fault.Unavailable, 6}, http.StatusTooManyRequests: {fault.Unavailable, 6},
	} {
		s.handle = func(w http.ResponseWriter, _ *http.Request, _ int32) { w.WriteHeader(status) }
		before := s.asked.Load()
		if _, err := get(t, c, digest("a"), s.URL+"/images/a"); fault.CodeOf(err) != want.code {
			t.Errorf("%d: %v", status, err)
		}
		if n := s.asked.Load() - before; n != want.tries {
			t.Errorf("%d: asked %d times", status, n)
		}
	}
	s.handle = nil
	has(t, c, s, "a")
}

func TestOnlyTheOperatorsSources(t *testing.T) {
	s := newStore(t)
	c := open(t, s, t.TempDir(), 10<<20)
	for from, want := range map[string]fault.Code{
		s.URL + "/other/a":                              fault.Forbidden,
		s.URL + "/imagesx/a":                            fault.Forbidden,
		"http://169.254.169.254/images/a":               fault.Forbidden,
		"https" + s.URL[4:] + "/images/a":               fault.Forbidden,
		s.URL + "/images/../other/a":                    fault.InvalidInput,
		s.URL + "/images/%2e%2e/other/a":                fault.InvalidInput,
		s.URL + "/images/..%2fother/a":                  fault.InvalidInput,
		s.URL + "/images/a?token=secret":                fault.InvalidInput,
		s.URL + "/images/a?":                            fault.InvalidInput,
		"http://user:secret@" + s.URL[7:] + "/images/a": fault.InvalidInput,
		"file:///etc/passwd":                            fault.InvalidInput,
		"a":                                             fault.InvalidInput,
	} {
		_, err := get(t, c, digest("a"), from)
		if fault.CodeOf(err) != want {
			t.Errorf("%s: %v", from, err)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the error tells a secret: %v", err)
		}
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	for _, from := range []string{"images", "ftp://x/", "https://u:p@x/", "https://x/?a=b"} {
		if err := cache.CheckSource(from); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestParseDigest(t *testing.T) {
	if got, err := cache.ParseDigest("sha256:" + digest("a")); err != nil || got != digest("a") {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", digest("a"), "sha256:", "sha256:..", "sha256:" + strings.ToUpper(digest("a")), "sha512:" + digest("a"), "sha256:" + digest("a") + "0"} {
		if _, err := cache.ParseDigest(text); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestADirectoryThatWillNotDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Open(cache.Options{Dir: path, Logger: slog.New(slog.DiscardHandler)}); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("a file: %v", err)
	}
}
