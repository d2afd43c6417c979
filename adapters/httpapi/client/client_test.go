package client

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// script answers request after request, and keeps what came.
type script struct {
	mu      sync.Mutex
	answers []http.HandlerFunc
	came    []*http.Request
	bodies  []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what came so far
	s.mu.Lock()
	s.came, s.bodies = append(s.came, r), append(s.bodies, string(body))
	answer := s.answers[min(len(s.came), len(s.answers))-1]
	s.mu.Unlock()
	answer(w, r)
}

func scripted(t *testing.T, answers ...http.HandlerFunc) (*Client, *script) {
	t.Helper()
	s := &script{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := New(Options{URL: server.URL, Token: "planted-token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.pause = func(int, time.Duration) time.Duration { return time.Millisecond }
	return c, s
}

func refuses(status int, code fault.Code, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contract.ProblemType)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"code":%q,"status":%d,"detail":"what happened","remedy":"what to do","requestId":"r-1",
			"issues":[{"path":"body.name","message":"needed"}]}`, code, status)
	}
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func answers(body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		_, _ = io.WriteString(w, body)
	}
}

func TestMutationIsSentAgainWithTheSameKey(t *testing.T) {
	c, s := scripted(t, hangsUp, refuses(503, fault.Unavailable), refuses(429, fault.RateLimited, "Retry-After", "1"),
		answers(`{"nodeId":"node_1"}`))
	n, err := c.Cordon(t.Context(), "node_1", contract.Reason{Reason: "r"})
	if err != nil || n.ID != "node_1" {
		t.Fatalf("got %+v, %v", n, err)
	}
	if len(s.came) != 4 {
		t.Fatalf("sent %d times, want 4", len(s.came))
	}
	first := s.came[0].Header.Get(contract.HeaderIdempotencyKey)
	for i, r := range s.came {
		if key := r.Header.Get(contract.HeaderIdempotencyKey); key == "" || key != first {
			t.Errorf("attempt %d has the key %q", i, key)
		}
		if s.bodies[i] != s.bodies[0] {
			t.Errorf("attempt %d has the body %s", i, s.bodies[i])
		}
	}
}

func TestTwoMutationsHaveTwoKeys(t *testing.T) {
	c, s := scripted(t, answers(`{}`))
	for range 2 {
		if _, err := c.Uncordon(t.Context(), "node_1"); err != nil {
			t.Fatal(err)
		}
	}
	if s.came[0].Header.Get(contract.HeaderIdempotencyKey) == s.came[1].Header.Get(contract.HeaderIdempotencyKey) {
		t.Error("both have the same key")
	}
}

func TestAVerdictIsNotAskedForAgain(t *testing.T) {
	for status, code := range map[int]fault.Code{
		400: fault.InvalidInput, 401: fault.Unauthenticated, 404: fault.NotFound, 409: fault.Conflict, 500: fault.Internal,
	} {
		c, s := scripted(t, refuses(status, code))
		_, err := c.Uncordon(t.Context(), "node_1")
		if fault.CodeOf(err) != code || len(s.came) != 1 {
			t.Errorf("%d: %v after %d attempts", status, err, len(s.came))
		}
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	c, s := scripted(t, refuses(503, fault.Unavailable))
	_, err := c.WhoAmI(t.Context())
	if fault.CodeOf(err) != fault.Unavailable || len(s.came) != defaultAttempts {
		t.Errorf("%v after %d attempts", err, len(s.came))
	}
}

func TestALongRetryAfterIsLeftToTheCaller(t *testing.T) {
	c, s := scripted(t, refuses(429, fault.RateLimited, "Retry-After", "3600"))
	_, err := c.WhoAmI(t.Context())
	var p *Problem
	if !errors.As(err, &p) || p.RetryAfter != time.Hour || len(s.came) != 1 {
		t.Errorf("%v after %d attempts", err, len(s.came))
	}
}

func TestProblemTellsEverything(t *testing.T) {
	c, _ := scripted(t, refuses(400, fault.InvalidInput))
	_, err := c.CreateTenant(t.Context(), contract.NewTenant{})
	var f *fault.Error
	var p *Problem
	if !errors.As(err, &f) || !errors.As(err, &p) {
		t.Fatalf("%T: %v", err, err)
	}
	if diff := cmp.Diff([]fault.Issue{{Path: "body.name", Message: "needed"}}, f.Issues); diff != "" {
		t.Error(diff)
	}
	if f.Message != "what happened" || f.Remedy != "what to do" || p.RequestID != "r-1" || p.Status != 400 {
		t.Errorf("%+v %+v", f, p)
	}
}

func TestAnAnswerOfSomethingElse(t *testing.T) {
	c, _ := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<html>secret of a proxy</html>")
	})
	_, err := c.WhoAmI(t.Context())
	if fault.CodeOf(err) != fault.NotFound || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestARedirectDoesNotCarryTheTokenAway(t *testing.T) {
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	c, _ := scripted(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	if _, err := c.WhoAmI(t.Context()); err == nil || elsewhere > 0 {
		t.Errorf("%v, followed %d times", err, elsewhere)
	}
}

func TestNoErrorHoldsTheToken(t *testing.T) {
	c, err := New(Options{URL: "http://127.0.0.1:1", Token: "planted-token", Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.WhoAmI(t.Context())
	if fault.CodeOf(err) != fault.Unavailable || strings.Contains(err.Error(), "planted") {
		t.Error(err)
	}
	_, err = New(Options{URL: "http://h", Token: "planted token"})
	if err == nil || strings.Contains(err.Error(), "planted") {
		t.Error(err)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, u := range []string{
		"", "host", "ftp://h", "http://", "http://u:planted@h", "http://h?token=planted", "http://h/%zz",
	} {
		_, err := New(Options{URL: u})
		if fault.CodeOf(err) != fault.InvalidInput || strings.Contains(err.Error(), "planted") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestReadsWaitForOwnWrites(t *testing.T) {
	c, s := scripted(t,
		answers(`{}`, contract.HeaderPosition, "41"), answers(`{}`, contract.HeaderPosition, "7"), answers(`{}`))
	for range 2 {
		if _, err := c.Uncordon(t.Context(), "node_1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.GetNode(t.Context(), "node_1"); err != nil {
		t.Fatal(err)
	}
	if got := s.came[2].Header.Get(contract.HeaderPosition); got != "41" {
		t.Errorf("the read waits for %q", got)
	}
}

// A mutation that the read models do not show yet is waited for, and succeeds whether they catch up or not.
func TestALateAnswerIsWaitedFor(t *testing.T) {
	late := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(contract.HeaderPosition, "41")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"nodeId":"node_1"}`)
	}
	c, s := scripted(t, late, answers(`{"items":[]}`), refuses(500, fault.Internal))
	n, err := c.Uncordon(t.Context(), "node_1")
	if err != nil || n.ID != "node_1" || len(s.came) != 3 {
		t.Fatalf("%+v, %v, after %d requests", n, err, len(s.came))
	}
	for _, r := range s.came[1:] {
		if r.Method != http.MethodGet || r.Header.Get(contract.HeaderPosition) != "41" {
			t.Errorf("%s %s waits for %q", r.Method, r.URL, r.Header.Get(contract.HeaderPosition))
		}
	}
}

func TestPages(t *testing.T) {
	c, s := scripted(t,
		answers(`{"items":[{"nodeId":"a"},{"nodeId":"b"}],"next":"n x"}`), answers(`{"items":[{"nodeId":"c"}]}`))
	nodes, err := Collect(c.Nodes(t.Context(), NodeFilter{Pool: "p"}), 0)
	if err != nil || len(nodes) != 3 || s.came[1].URL.RawQuery != "cursor=n+x&pool=p" {
		t.Errorf("%d nodes, %v, asked %s", len(nodes), err, s.came[1].URL.RawQuery)
	}
}

func TestPathsAreEscaped(t *testing.T) {
	c, s := scripted(t, answers(`{}`))
	if _, err := c.GetNode(t.Context(), "../tenants?x=1"); err != nil {
		t.Fatal(err)
	}
	if got := s.came[0].RequestURI; got != "/v1/nodes/..%2Ftenants%3Fx=1" {
		t.Error(got)
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(answers(`{"principalId":"p"}`))
	defer server.Close()
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.WhoAmI(t.Context())
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = New(Options{URL: server.URL, TLS: TLS{CAFile: file}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WhoAmI(t.Context()); err != nil {
		t.Error(err)
	}
	for _, bad := range []TLS{{CAFile: file + "x"}, {CertFile: file}, {CertFile: file, KeyFile: file}} {
		if _, err := New(Options{URL: server.URL, TLS: bad}); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
