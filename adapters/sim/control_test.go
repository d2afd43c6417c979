package sim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/sim"
)

func TestControl(t *testing.T) {
	s, _ := site(t, sim.Config{Count: 2})
	m := s.Machines()[0]
	if err := m.WriteDisk(1, 512, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, method, path, host, content, body string
		status                                  int
		says                                    string
	}{
		{"list", "GET", "/machines", "127.0.0.1:1", "", "", 200, m.BMC()},
		{"one", "GET", "/machines/machine-2", "localhost", "", "", 200, `"console"`},
		{"nobody", "GET", "/machines/machine-9", "[::1]:1", "", "", 404, "NOT_FOUND"},
		{"disk", "GET", "/machines/machine-1/disks/1?offset=512&length=5", "localhost", "", "", 200, "hello"},
		{"its end", "GET", "/machines/machine-1/disks/0?offset=67108860&length=64", "localhost", "", "", 200, ""},
		{"no disk", "GET", "/machines/machine-1/disks/7", "localhost", "", "", 404, "no disk 7"},
		{"no number", "GET", "/machines/machine-1/disks/x", "localhost", "", "", 400, "number"},
		{"too much", "GET", "/machines/machine-1/disks/0?length=99999999", "localhost", "", "", 400, "length"},
		{"before it", "GET", "/machines/machine-1/disks/0?offset=-1", "localhost", "", "", 400, "offset"},
		{"reset", "POST", "/machines/machine-1/reset", "localhost", "application/json", `{"resetType":"On"}`, 200, `"on"`},
		{"unknown reset", "POST", "/machines/machine-1/reset", "localhost", "application/json", `{"resetType":"Up"}`, 409, "Up"},
		{"fault", "POST", "/faults", "localhost", "application/json", `{"machine":"machine-1","hungBoots":1}`, 200, "{}"},
		{"unknown fault", "POST", "/faults", "localhost", "application/json", `{"flood":true}`, 400, "flood"},
		{"a web page", "POST", "/faults", "localhost", "text/plain", `{"hungBoots":1}`, 400, "Content-Type"},
		{"another host", "GET", "/machines", "metal.example", "", "", 403, "FORBIDDEN"},
		{"another address", "GET", "/machines", "10.0.0.1:80", "", "", 403, "FORBIDDEN"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), test.method, "http://"+test.host+test.path, strings.NewReader(test.body))
			if test.content != "" {
				r.Header.Set("Content-Type", test.content)
			}
			w := httptest.NewRecorder()
			s.Control().ServeHTTP(w, r)
			body, _ := io.ReadAll(w.Body)
			if w.Code != test.status || !strings.Contains(string(body), test.says) {
				t.Errorf("%d %s", w.Code, body)
			}
		})
	}
	if w := httptest.NewRecorder(); true {
		s.Control().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "http://localhost/machines", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("DELETE: %d", w.Code)
		}
	}
}
