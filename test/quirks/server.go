package quirks

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/node"
)

// What a request must log in with. Neither these nor any session token may turn up in an error or a log line.
const (
	Username = "operator"
	Password = "canary-password"
	canary   = "canary"
)

// Doc is one Redfish document, or a part of one.
type Doc = map[string]any

// Request is one request that arrived.
type Request struct {
	Method, Path string
	Query        string
	Header       http.Header
	Body         Doc    // nil where there is no JSON object
	Raw          string // the body as it came
	Status       int    // of the answer; zero where there was none
}

// Server is one management controller. It behaves well until rules say otherwise: see On. What is set before Run is as
// it says; afterwards everything goes through methods.
type Server struct {
	Listen string      // host:port; empty: a free port of 127.0.0.1
	TLS    *tls.Config // nil: a self-signed certificate
	HTTP2  bool
	Lag    int // how many reads pass until a power action shows

	t    testing.TB
	http *httptest.Server
	stop chan struct{}

	mu       sync.Mutex
	docs     map[string]*document
	rules    []*rule
	requests []*Request
	sessions map[string]string // token → path
	password string

	logins, rejected, peakSessions int
	inFlight, peak                 int
	writing, peakWriting           int
	lostPower                      int
	resets                         []string
}

// document is a Doc with its version.
type document struct {
	path    string
	doc     Doc
	version int
	power   []string // states that reads will see, the present one first; only of systems
}

// New makes a controller without documents.
func New(t testing.TB) *Server {
	return &Server{
		t: t, stop: make(chan struct{}), docs: map[string]*document{}, sessions: map[string]string{}, password: Password,
	}
}

// Start runs a controller of one healthy machine: see Machine.
func Start(t testing.TB) *Server {
	t.Helper()
	s := New(t)
	s.Machine()
	s.Run()
	return s
}

// Run listens until the test ends.
func (s *Server) Run() {
	s.t.Helper()
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail on purpose
	s.http.EnableHTTP2 = s.HTTP2
	if s.Listen != "" {
		listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", s.Listen)
		if err != nil {
			s.t.Fatalf("listen on %s: %v", s.Listen, err)
		}
		_ = s.http.Listener.Close()
		s.http.Listener = listener
	}
	if s.TLS == nil {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{Certificate{}.Make(s.t)}}
	}
	s.http.TLS = s.TLS
	s.http.StartTLS()
	s.t.Cleanup(func() {
		close(s.stop)
		s.http.CloseClientConnections()
		s.http.Close()
	})
}

// Target is what reaches the controller, with its certificate pinned.
func (s *Server) Target() bmc.Target {
	return bmc.Target{
		Address: s.http.URL, Username: Username, Password: Password, CredentialVersion: "1",
		TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: s.Fingerprint()},
	}
}

// Fingerprint is the SHA-256 of the certificate that is shown.
func (s *Server) Fingerprint() string {
	return fingerprint(s.TLS.Certificates[0])
}

func fingerprint(c tls.Certificate) string {
	sum := sha256.Sum256(c.Certificate[0])
	return hex.EncodeToString(sum[:])
}

// serve notes a request, asks the rules and writes what they give.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	in := &Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header, Raw: string(raw)}
	_ = json.Unmarshal(raw, &in.Body)
	write := r.Method != http.MethodGet && r.Method != http.MethodHead
	x := &Exchange{Request: in, server: s, context: r.Context()}
	s.mu.Lock()
	s.requests = append(s.requests, in)
	x.rest = s.matching(in)
	s.enter(write, 1)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.enter(write, -1)
		s.mu.Unlock()
	}()
	a := x.Next()
	s.mu.Lock()
	in.Status = a.Status
	s.mu.Unlock()
	a.write(w)
}

// enter counts requests that are being answered. The lock is held.
func (s *Server) enter(write bool, n int) {
	s.inFlight += n
	s.peak = max(s.peak, s.inFlight)
	if write {
		s.writing += n
		s.peakWriting = max(s.peakWriting, s.writing)
	}
}

// key is what a path is looked up by: paths are told apart neither by case nor by a slash at the end.
func key(path string) string { return strings.ToLower(strings.TrimRight(path, "/")) }

// Put sets a document. Its @odata.id is its path unless it says another.
func (s *Server) Put(path string, d Doc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = clone(d) // it may be a table's, which several tests read
	if _, ok := d["@odata.id"]; !ok {
		d["@odata.id"] = path
	}
	e := &document{path: path, doc: d, version: 1}
	if state, ok := d["PowerState"].(string); ok {
		e.power = []string{state}
	}
	s.docs[key(path)] = e
}

// Collection sets a collection of members.
func (s *Server) Collection(path string, members ...string) {
	links := make([]any, len(members))
	for i, m := range members {
		links[i] = Link(m)
	}
	s.Put(path, Doc{"Members": links, "Members@odata.count": len(members)})
}

// Remove takes documents away.
func (s *Server) Remove(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range paths {
		delete(s.docs, key(p))
	}
}

// Edit changes a document in place; what the change sets to Gone is taken out.
func (s *Server) Edit(path string, change Doc) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.docs[key(path)]
	if e == nil {
		s.t.Fatalf("there is no document at %s", path)
	}
	e.version++
	merge(e.doc, change)
	if state, ok := change["PowerState"].(string); ok {
		e.power = []string{state}
	}
}

// Get is a copy of a document as it stands.
func (s *Server) Get(path string) Doc {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.docs[key(path)]
	if e == nil {
		s.t.Fatalf("there is no document at %s", path)
	}
	return e.told()
}

// told is a copy of the document with its present power state.
func (e *document) told() Doc {
	d := clone(e.doc)
	if len(e.power) > 0 {
		d["PowerState"] = e.power[0]
	}
	return d
}

// Requests are those of a method to a path, in the order of their arrival. An empty method or path is any; a path that
// ends with * is the beginning of one.
func (s *Server) Requests(method, path string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, r := range s.requests {
		if matches(method, path, r) {
			found = append(found, *r)
		}
	}
	return found
}

// Bodies are the bodies of the requests of a method to a path.
func (s *Server) Bodies(method, path string) []Doc {
	var found []Doc
	for _, r := range s.Requests(method, path) {
		found = append(found, r.Body)
	}
	return found
}

func matches(method, path string, r *Request) bool {
	if method != "" && method != r.Method {
		return false
	}
	if start, ok := strings.CutSuffix(path, "*"); ok {
		return strings.HasPrefix(key(r.Path), strings.ToLower(start))
	}
	return path == "" || key(path) == key(r.Path)
}

// Resets are the reset types that were carried out, in order.
func (s *Server) Resets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.resets)
}

// Counts is what a controller knows about its callers.
type Counts struct {
	Sessions, PeakSessions int // open now, and at most
	Logins, Rejected       int // sessions that were made; wrong passwords that were shown
	Peak, PeakWriting      int // requests at one time, and those of them that change something
	LostPower              int // how often a machine went off
}

// Counts tells what was counted so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{
		Sessions: len(s.sessions), PeakSessions: s.peakSessions, Logins: s.logins, Rejected: s.rejected,
		Peak: s.peak, PeakWriting: s.peakWriting, LostPower: s.lostPower,
	}
}

// EndSessions forgets every session, as a controller does that starts again.
func (s *Server) EndSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// SetPassword changes the password that logins need.
func (s *Server) SetPassword(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password = p
}

// token is a session's secret.
func token(n int) string { return canary + "-token-" + strconv.Itoa(n) }
