package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

func proxy(t *testing.T, l ProxyLimits, ask agentcommand.HTTPProxy) (agentcommand.HTTPProxied, error) {
	t.Helper()
	payload, err := json.Marshal(ask)
	check(t, err)
	out, _, err := siteHTTPProxy(l)(t.Context(), orderOf(t, agentcommand.SiteHTTPProxy, string(payload)))
	got, _ := out.(agentcommand.HTTPProxied)
	return got, err
}

var loopback = ProxyLimits{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

func TestProxySendsOneRequest(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("X-Seen", r.Method+" "+r.Header.Get("X-Ask")+" "+r.Header.Get("Accept-Encoding"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer s.Close()
	got, err := proxy(t, loopback, agentcommand.HTTPProxy{Method: "PUT", URL: s.URL + "/x", Header: map[string]string{"X-Ask": "1"}, Body: []byte("b")})
	if err != nil || got.Status != http.StatusFound || got.Header["X-Seen"] != "PUT 1" || requests.Load() != 1 {
		t.Errorf("got %+v, %v after %d requests", got, err, requests.Load())
	}
}

func TestProxyRefusesWhatIsNoMachine(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "169.254.169.254", "[fe80::1]", "100.100.100.200",
		"224.0.0.1", "[64:ff9b::7f00:1]", "[fd00:ec2::254]", "192.0.2.7",
	} {
		_, err := proxy(t, ProxyLimits{Deny: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			agentcommand.HTTPProxy{Method: "GET", URL: "http://" + host + ":" + port, Timeout: 2})
		if fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %v", host, err)
		}
	}
	// The control plane's own addresses, and this host's, by name.
	if _, err := proxy(t, ProxyLimits{Hosts: []string{"192.0.2.9"}}, agentcommand.HTTPProxy{Method: "GET", URL: "http://192.0.2.9"}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("the control plane: %v", err)
	}
}

// The address is looked at once more as it is connected to: a name may have another by then.
func TestProxyLooksAgainAtConnect(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer s.Close()
	g, err := ProxyLimits{}.guard(t.Context())
	check(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	check(t, err)
	answer, err := g.client().Do(req)
	if err == nil {
		_ = answer.Body.Close()
	}
	if fault.CodeOf(proxyFault(err)) != fault.Forbidden {
		t.Errorf("got %v", err)
	}
}

func TestProxyLimits(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			_, _ = w.Write(make([]byte, proxyBytes+1))
		case "/slow":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer s.Close()
	defer close(release)
	// It is slow until this test is over.
	if _, err := proxy(t, loopback, agentcommand.HTTPProxy{Method: "GET", URL: s.URL + "/slow", Timeout: 0.05}); fault.CodeOf(err) != fault.Timeout {
		t.Errorf("slow: %v", err)
	}
	if _, err := proxy(t, loopback, agentcommand.HTTPProxy{Method: "GET", URL: s.URL + "/large"}); fault.CodeOf(err) != fault.DriverError {
		t.Errorf("large: %v", err)
	}
	for name, ask := range map[string]agentcommand.HTTPProxy{
		"credentials in the URL": {Method: "GET", URL: "http://u:p@127.0.0.1/"},
		"a method that is none":  {Method: "A B", URL: s.URL},
		"another host":           {Method: "GET", URL: s.URL, Header: map[string]string{"host": "x"}},
		"no URL":                 {Method: "GET", URL: "file:///etc/passwd"},
	} {
		if _, err := proxy(t, loopback, ask); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}
