package netboot_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/netboot/limit"
	"github.com/better-compute/metal/domain/fault"
)

// kept stands for the cache: it gives one image, or an error.
type kept struct {
	path string
	err  error
	from string
}

func (k *kept) Get(_ context.Context, digest, from string) (*os.File, error) {
	k.from = digest + " of " + from
	if k.err != nil {
		return nil, k.err
	}
	return os.Open(k.path)
}

func serveFiles(t *testing.T, s *netboot.Server) string {
	t.Helper()
	s.Entries, s.Logger = netboot.NewEntries(time.Now), slog.New(slog.DiscardHandler)
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return server.URL
}

func TestHTTPBootFetchesIPXE(t *testing.T) {
	url := serveFiles(t, &netboot.Server{Loaders: fstest.MapFS{"arm64-efi/snponly.efi": {Data: []byte("iPXE")}}})
	if got := fetch(t, netboot.LoaderURL(url+"/", "arm64-efi/snponly.efi"), http.StatusOK); got != "iPXE" {
		t.Errorf("got %q", got)
	}
	for _, path := range []string{"/ipxe/", "/ipxe/arm64-efi", "/ipxe/..%2fx", "/files/arm64-efi/snponly.efi", "/images/sha256:" + strings.Repeat("a", 64)} {
		fetch(t, url+path, http.StatusNotFound)
	}
}

// A machine fetches an image by its digest, in parts if it has to.
func TestImagesByDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := &kept{path: path}
	server := serveFiles(t, &netboot.Server{Images: k, Transfers: limit.NewTransfers(1, 1, time.Second)})
	digest := strings.Repeat("a", 64)
	url := netboot.ImageURL(server, "sha256:"+digest, "https://images.example/debian 12.raw")
	if got := fetch(t, url, http.StatusOK); got != "0123456789" || k.from != digest+" of https://images.example/debian 12.raw" {
		t.Errorf("%q, asked for %s", got, k.from)
	}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", "bytes=4-")
	req.Header.Set("If-Range", `"`+digest+`"`)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if got, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusPartialContent || string(got) != "456789" {
		t.Errorf("%s: %q, %v", answer.Status, got, err)
	}
	fetch(t, server+"/images/sha256:xyz", http.StatusBadRequest)
	k.err = fault.New(fault.Unavailable, "the image is larger than the cache")
	answer, err = http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "" {
		t.Errorf("where it will never be: %s, %v", answer.Status, answer.Header)
	}
	k.err = fault.Wrap(context.DeadlineExceeded, fault.Unavailable, "the image is being fetched")
	answer, err = http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("while it is fetched: %s, %v", answer.Status, answer.Header)
	}
}

// A machine that waits for its turn with an image gives up the connection after a minute, and takes it for broken: before that it
// is told to ask again.
func TestAMachineThatWaitsForAnImageIsToldToComeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		transfers := limit.NewTransfers(1, 1, time.Hour)
		s := &netboot.Server{
			Entries: netboot.NewEntries(time.Now), Images: &kept{path: path}, Transfers: transfers, Logger: slog.New(slog.DiscardHandler),
		}
		leave, err := transfers.Enter(t.Context(), "another machine")
		if err != nil {
			t.Fatal(err)
		}
		began, url := time.Now(), netboot.ImageURL("", "sha256:"+strings.Repeat("a", 64), "https://images.example/debian")
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, url, nil))
		if took := time.Since(began); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" || took > 40*time.Second {
			t.Errorf("after %v: %d, %v", took, answer.Code, answer.Header())
		}
		leave()
		answer = httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, url, nil))
		if answer.Code != http.StatusOK || answer.Body.String() != "0123456789" {
			t.Errorf("when it is its turn: %d, %q", answer.Code, answer.Body)
		}
	})
}

// While all places are taken, further machines wait for a turn and are then told to ask again.
func TestTransfersAreBounded(t *testing.T) {
	transfers := limit.NewTransfers(1, 1, 10*time.Millisecond)
	s := &netboot.Server{
		Entries: netboot.NewEntries(time.Now), Files: fstest.MapFS{"vmlinuz": {Data: []byte("kernel")}}, Transfers: transfers,
		Logger: slog.New(slog.DiscardHandler),
	}
	fetch := func(path string) *httptest.ResponseRecorder { // it is over when its answer is
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer
	}
	leave, err := transfers.Enter(t.Context(), "another machine")
	if err != nil {
		t.Fatal(err)
	}
	if answer := fetch("/files/vmlinuz"); answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") == "" {
		t.Errorf("%d, %v", answer.Code, answer.Header())
	}
	if answer := fetch("/boot/" + mac); answer.Code != http.StatusOK { // scripts are no transfers
		t.Errorf("a script: %d", answer.Code)
	}
	leave()
	for range 3 { // each gives its place back
		if answer := fetch("/files/vmlinuz"); answer.Code != http.StatusOK {
			t.Errorf("%d, %v", answer.Code, answer.Header())
		}
	}
}

func TestTheRateIsBounded(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 200_000)
	url := serveFiles(t, &netboot.Server{Files: fstest.MapFS{"vmlinuz": {Data: data}}, Rate: limit.NewRate(400_000)})
	began := time.Now()
	if got := fetch(t, url+"/files/vmlinuz", http.StatusOK); len(got) != len(data) {
		t.Errorf("%d bytes", len(got))
	}
	if took := time.Since(began); took < 350*time.Millisecond {
		t.Errorf("%d bytes at 400,000 a second took %s", len(data), took)
	}
}

func ExampleScriptURL() {
	fmt.Println(netboot.ScriptURL("http://10.0.0.2:8081/", mac))
	// Output: http://10.0.0.2:8081/boot/02:00:00:00:00:01
}
