package bmcsim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// root is where the service begins.
const root = "/redfish/v1"

// maxBody bounds what a request may carry.
const maxBody = 64 << 10

// resource is what is at a path.
type resource struct {
	doc      func(State) doc // nil: an action only
	volatile bool            // the document depends on more than the State: it is made for each request
	patch    func(call) answer
	post     func(call) answer
	remove   func(call) answer
	open     string // method that needs no login
	hostOnly bool   // away while the machine is off

	made  bool
	state State
	body  []byte
	etag  string
}

// call is one authenticated request.
type call struct {
	r     *http.Request
	token string // of the session, if it has one
	body  []byte
	set   map[string]json.RawMessage // the body, decoded
}

// Service is the Redfish service of one controller. It is an http.Handler.
type Service struct {
	p         *personality
	board     Board
	facts     Facts
	now       func() time.Time
	rules     *Rules
	base      string // of the system, manager and chassis below
	mgr, chas string

	mu        sync.Mutex
	resources map[string]*resource
	sessions  sessions
	tasks     []*task
	jobs      []job
}

// Options is how a service runs.
type Options struct {
	Personality Name
	Now         func() time.Time // nil: the wall clock
	Rules       *Rules           // nil: none
}

// New makes the service of a board.
func New(board Board, o Options) (*Service, error) {
	p, err := find(o.Personality)
	if err != nil {
		return nil, err
	}
	s := &Service{p: p, board: board, facts: board.Facts(), now: o.Now, rules: o.Rules}
	if s.now == nil {
		s.now = time.Now
	}
	s.base, s.mgr, s.chas = root+"/Systems/"+p.systemID, root+"/Managers/"+p.managerID, root+"/Chassis/"+p.chassisID
	s.sessions.init(p.maxSessions)
	s.resources = map[string]*resource{}
	s.addRoot()
	s.addSystem()
	s.addManager()
	s.addMedia()
	s.addInventory()
	s.addSensors()
	return s, nil
}

// ServeHTTP answers one request, after the rules had their say.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule := s.rules.hit(r)
	if !rule.before(w, r) {
		return
	}
	a := rule.instead(r)
	if a.status == 0 {
		a = s.handle(r)
	}
	rule.finish(w, r, a)
}

func (s *Service) handle(r *http.Request) answer {
	if a := s.checkHeaders(r); a.status != 0 {
		return a
	}
	key := s.key(r.URL.Path)
	s.mu.Lock()
	res := s.resources[key]
	s.mu.Unlock()
	if res == nil {
		res = s.dynamic(key)
	}
	c := call{r: r}
	if res == nil || res.open != r.Method {
		token, a := s.login(r)
		if a.status != 0 {
			return a
		}
		c.token = token
	}
	if res == nil {
		return refuse(http.StatusNotFound, "ResourceMissingAtURI", "The resource at the URI was not found.", r.URL.Path)
	}
	if res.hostOnly && !s.board.State().On {
		return refuse(http.StatusServiceUnavailable, "ServiceTemporarilyUnavailable", "Retry in 30 seconds.", "30").
			with("Retry-After", "30")
	}
	return s.dispatch(res, c)
}

func (s *Service) dispatch(res *resource, c call) answer {
	switch method := c.r.Method; {
	case (method == http.MethodGet || method == http.MethodHead) && res.doc != nil:
		return s.get(res, c.r)
	case method == http.MethodPatch && res.patch != nil:
		if a := s.precondition(res, c.r); a.status != 0 {
			return a
		}
		return decoded(c, res.patch)
	case method == http.MethodPost && res.post != nil:
		if c.r.Header.Get("If-Match") != "" && res.doc == nil {
			return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "An action has no ETag to match.")
		}
		return decoded(c, res.post)
	case method == http.MethodDelete && res.remove != nil:
		return res.remove(c)
	default:
		return refuse(http.StatusMethodNotAllowed, "OperationNotAllowed", "The method is not allowed here.")
	}
}

// checkHeaders is for who keeps to the standard.
func (s *Service) checkHeaders(r *http.Request) answer {
	if v := r.Header.Get("OData-Version"); v != "" && v != "4.0" {
		return refuse(http.StatusPreconditionFailed, "HeaderInvalid", "OData-Version is not 4.0.", "OData-Version")
	}
	if s.p.name == Standard && strings.Contains(r.URL.RawQuery, "$") {
		return refuse(http.StatusNotImplemented, "QueryNotSupported", "Querying is not supported.")
	}
	return answer{}
}

// decoded reads the body and hands it on.
func decoded(c call, to func(call) answer) answer {
	body, err := io.ReadAll(io.LimitReader(c.r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		return refuse(http.StatusBadRequest, "MalformedJSON", "The body could not be read.")
	}
	if t := c.r.Header.Get("Content-Type"); len(body) == 0 || !strings.HasPrefix(t, "application/json") {
		return refuse(http.StatusUnsupportedMediaType, "UnrecognizedRequestBody", "The body is not application/json.")
	}
	if err := json.Unmarshal(body, &c.set); err != nil || c.set == nil {
		return refuse(http.StatusBadRequest, "MalformedJSON", "The body is not a JSON object.")
	}
	c.body = body
	return to(c)
}

// get answers with the document, made anew where the machine's state has changed.
func (s *Service) get(res *resource, r *http.Request) answer {
	s.refresh(res)
	s.mu.Lock()
	a, tag := answer{status: http.StatusOK, body: res.body}, res.etag
	s.mu.Unlock()
	switch s.p.tag {
	case etagStrong:
		a = a.with("ETag", `"`+tag+`"`)
	case etagWeak:
		a = a.with("ETag", `W/"`+tag+`"`)
	case etagNone, etagBare:
	}
	if none := r.Header.Get("If-None-Match"); none != "" && strip(none) == tag {
		a.status, a.body = http.StatusNotModified, nil
	}
	return a
}

func (s *Service) refresh(res *resource) {
	state := s.board.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	if res.made && !res.volatile && res.state == state {
		return
	}
	d := res.doc(state)
	plain := encode(d)
	sum := sha256.Sum256(plain)
	res.etag = hex.EncodeToString(sum[:8])
	switch s.p.tag {
	case etagStrong:
		d["@odata.etag"] = `"` + res.etag + `"`
	case etagWeak:
		d["@odata.etag"] = `W/"` + res.etag + `"`
	case etagBare:
		d["@odata.etag"] = res.etag
	case etagNone:
	}
	res.body, res.state, res.made = encode(d), state, true
}

// precondition holds a change to the version of the document that the client has seen.
func (s *Service) precondition(res *resource, r *http.Request) answer {
	match := r.Header.Get("If-Match")
	if match == "" {
		if s.p.ifMatch {
			return refuse(http.StatusPreconditionRequired, "PreconditionRequired", "If-Match is missing.")
		}
		return answer{}
	}
	s.refresh(res)
	s.mu.Lock()
	defer s.mu.Unlock()
	if match != "*" && strip(match) != res.etag {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The ETag does not match.")
	}
	return answer{}
}

// key is how a path is looked up.
func (s *Service) key(path string) string {
	if path != root+"/" && !s.p.loose {
		return path
	}
	path = strings.TrimSuffix(path, "/")
	if s.p.loose {
		path = strings.ToLower(path)
	}
	return path
}

func (s *Service) add(path string, res *resource) { s.resources[s.key(path)] = res }

// fixed adds a document that never changes.
func (s *Service) fixed(path string, d doc) {
	d["@odata.id"] = s.id(path)
	s.add(path, &resource{doc: func(State) doc { return clone(d) }})
}

// id is how a path is written in documents.
func (s *Service) id(path string) string {
	if s.p.slash && path != root {
		return path + "/"
	}
	return path
}

func (s *Service) link(path string) doc { return doc{"@odata.id": s.id(path)} }

func (s *Service) links(paths ...string) []doc {
	links := make([]doc, 0, len(paths))
	for _, p := range paths {
		links = append(links, s.link(p))
	}
	return links
}

// collection adds a collection of fixed members.
func (s *Service) collection(path, kind string, members ...string) {
	s.fixed(path, doc{
		"@odata.type": "#" + kind + "Collection." + kind + "Collection", "Name": kind + " Collection",
		"Members": s.links(members...), "Members@odata.count": len(members),
	})
}

func clone(d doc) doc {
	c := make(doc, len(d)+1)
	for k, v := range d {
		c[k] = v
	}
	return c
}

// mac writes an address as this controller does.
func (s *Service) mac(address string) string {
	if s.p.upperMAC {
		return strings.ToUpper(address)
	}
	return strings.ToLower(address)
}
