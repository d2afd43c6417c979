package qemu

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/test/machine/assets"
)

// A controller fetches what its virtual drive holds, by HTTP or HTTPS, and the machine's next start finds it there.
func TestAVirtualDriveHoldsWhatWasFetched(t *testing.T) {
	m, err := New(assets.Assets{}, t.TempDir(), Spec{Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/good.iso" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("image by " + r.Proto + r.URL.Scheme))
	})
	plain, secret := httptest.NewServer(serve), httptest.NewTLSServer(serve)
	t.Cleanup(plain.Close)
	t.Cleanup(secret.Close)
	for _, url := range []string{plain.URL + "/good.iso", secret.URL + "/good.iso"} {
		m.SetMedia(0, bmcsim.Media{Image: url, Inserted: true, ReadOnly: true})
		if held, err := os.ReadFile(m.MediaFile()); err != nil || !strings.HasPrefix(string(held), "image by HTTP/1.1") {
			t.Errorf("%s: the drive holds %q, %v", url, held, err)
		}
		if got := m.State().Media[0]; got.Image != url || !got.Inserted {
			t.Errorf("the controller tells %+v", got)
		}
		line := strings.Join(m.arguments(bmcsim.Boot{Enabled: "Once", Target: "Cd"}), " ")
		if !strings.Contains(line, "file="+m.MediaFile()) || !strings.Contains(line, "id=optical,bootindex=0") {
			t.Errorf("the machine starts with %s", line)
		}
		if line := strings.Join(m.arguments(bmcsim.Boot{Enabled: "Disabled", Target: "Cd"}), " "); strings.Contains(line, "id=optical,bootindex") {
			t.Errorf("without an override it starts with %s", line)
		}
		m.SetMedia(0, bmcsim.Media{})
		if line := m.arguments(bmcsim.Boot{}); m.State().Media[0].Inserted || slices.ContainsFunc(line, func(word string) bool {
			return strings.Contains(word, m.MediaFile())
		}) {
			t.Errorf("ejected, the machine starts with %s", line)
		}
	}
	for _, url := range []string{plain.URL + "/bad.iso", "http://127.0.0.1:1/good.iso", "ftp://x/y", "%"} {
		if m.SetMedia(0, bmcsim.Media{Image: url, Inserted: true}); m.State().Media[0].Inserted {
			t.Errorf("%s can't be fetched, and is in the drive", url)
		}
	}
}
