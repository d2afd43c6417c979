package quirks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// behave is a controller without quirks. The lock is held.
func (s *Server) behave(r *Request) *Answer {
	path := key(r.Path)
	if r.Method == http.MethodPost && path == s.sessionsPath() {
		return s.login(r)
	}
	open := r.Method == http.MethodGet && (path == "/redfish" || path == "/redfish/v1")
	if !open && !s.authorised(r) {
		if r.Header.Get("Authorization") != "" {
			s.rejected++
		}
		return Problem(http.StatusUnauthorized, "Base.1.8.NoValidSession", "There is no valid session established with the implementation.")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodDelete && r.Body == nil {
		return Problem(http.StatusUnsupportedMediaType, "Base.1.8.MalformedJSON", "The request body is not a JSON object.")
	}
	switch r.Method {
	case http.MethodGet:
		return s.read(path)
	case http.MethodPatch:
		return s.change(path, r)
	case http.MethodPost:
		return s.act(path, r)
	case http.MethodDelete:
		return s.logout(path)
	}
	return Problem(http.StatusMethodNotAllowed, "Base.1.8.ActionNotSupported", "The method is not supported here.")
}

// sessionsPath is where logins go.
func (s *Server) sessionsPath() string {
	if root := s.docs["/redfish/v1"]; root != nil {
		if p := linkIn(root.doc, "Links", "Sessions"); p != "" {
			return key(p)
		}
	}
	return "/redfish/v1/sessionservice/sessions"
}

func (s *Server) login(r *Request) *Answer {
	if r.Body["UserName"] != Username || r.Body["Password"] != s.password {
		s.rejected++
		return Problem(http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized", "The credentials are wrong.")
	}
	s.logins++
	path := s.sessionsPath() + "/" + strconv.Itoa(s.logins)
	s.sessions[token(s.logins)] = path
	s.peakSessions = max(s.peakSessions, len(s.sessions))
	body := Doc{"@odata.id": path, "Id": strconv.Itoa(s.logins), "Name": "Session", "UserName": Username}
	return Say(http.StatusCreated, body).With("Location", path).With("X-Auth-Token", token(s.logins))
}

func (s *Server) authorised(r *Request) bool {
	if t := r.Header.Get("X-Auth-Token"); t != "" {
		return s.sessions[t] != ""
	}
	user, password, ok := (&http.Request{Header: r.Header}).BasicAuth()
	return ok && user == Username && password == s.password
}

func (s *Server) logout(path string) *Answer {
	for t, p := range s.sessions {
		if p == path {
			delete(s.sessions, t)
			return Say(http.StatusNoContent, nil)
		}
	}
	return notFound(path)
}

func notFound(path string) *Answer {
	return Problem(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "There is no resource at "+path+".", path)
}

func (s *Server) read(path string) *Answer {
	e := s.docs[path]
	if e == nil {
		return notFound(path)
	}
	d := e.told()
	if len(e.power) > 1 {
		s.enterPower(e)
	}
	return Say(http.StatusOK, d).With("ETag", e.tag())
}

// enterPower goes on to the next state that was planned.
func (s *Server) enterPower(e *document) {
	if e.power[0] != "Off" && e.power[1] == "Off" {
		s.lostPower++
	}
	e.power = e.power[1:]
}

// tag is what a document's ETag is: its own, as captured, or its version.
func (e *document) tag() string {
	if own, ok := e.doc["@odata.etag"].(string); ok {
		if !strings.HasSuffix(own, `"`) {
			own = strconv.Quote(own)
		}
		return own
	}
	return strconv.Quote("v" + strconv.Itoa(e.version))
}

func (s *Server) change(path string, r *Request) *Answer {
	e := s.docs[path]
	if e == nil {
		return notFound(path)
	}
	if tag := r.Header.Get("If-Match"); tag != "" && tag != e.tag() && tag != "*" {
		return Problem(http.StatusPreconditionFailed, "Base.1.8.PreconditionFailed", "The ETag did not match.")
	}
	if unknown := unknownIn(e.doc, r.Body, ""); unknown != "" {
		return Problem(http.StatusBadRequest, "Base.1.8.PropertyUnknown", "The property "+unknown+" is not known.", unknown)
	}
	if p, v := notAllowed(e.doc, r.Body); p != "" {
		return Problem(http.StatusBadRequest, "Base.1.8.PropertyValueNotInList", fmt.Sprintf("%s can't be %v.", p, v), fmt.Sprint(v), p)
	}
	e.version++
	delete(e.doc, "@odata.etag")
	merge(e.doc, r.Body)
	if inserted, ok := r.Body["Inserted"].(bool); ok {
		e.doc["ConnectedVia"] = map[bool]string{true: "URI", false: "NotConnected"}[inserted]
	}
	return Say(http.StatusNoContent, nil)
}

// unknownIn names the first property of change that the document does not have.
func unknownIn(have, change Doc, prefix string) string {
	for name, value := range change {
		old, ok := have[name]
		if !ok {
			return prefix + name
		}
		inner, object := value.(Doc)
		if within, ok := old.(Doc); ok && object {
			if found := unknownIn(within, inner, prefix+name+"/"); found != "" {
				return found
			}
		}
	}
	return ""
}

// notAllowed finds a value that is not in the list which stands beside its property.
func notAllowed(have, change Doc) (property string, value any) {
	for name, value := range change {
		if list := stringsIn(have[name+"@Redfish.AllowableValues"]); list != nil && !slices.Contains(list, fmt.Sprint(value)) {
			return name, value
		}
		inner, object := value.(Doc)
		if within, ok := have[name].(Doc); ok && object {
			if p, v := notAllowed(within, inner); p != "" {
				return p, v
			}
		}
	}
	return "", nil
}

func (s *Server) act(path string, r *Request) *Answer {
	at, action, found := strings.Cut(path, "/actions/")
	e := s.docs[at]
	if !found || e == nil {
		return notFound(path)
	}
	switch action {
	case "computersystem.reset":
		return s.reset(e, fmt.Sprint(r.Body["ResetType"]))
	case "virtualmedia.insertmedia":
		return s.insert(e, r.Body)
	case "virtualmedia.ejectmedia":
		s.eject(e)
		return Say(http.StatusNoContent, nil)
	}
	return notFound(path)
}

// resetTypes is what an action of a system allows, directly or by its ActionInfo; nil where it does not tell.
func (s *Server) resetTypes(e *document) []string {
	actions, _ := e.doc["Actions"].(Doc)
	reset, _ := actions["#ComputerSystem.Reset"].(Doc)
	if list := stringsIn(reset["ResetType@Redfish.AllowableValues"]); list != nil {
		return list
	}
	link, _ := reset["@Redfish.ActionInfo"].(string)
	info := s.docs[key(link)]
	if info == nil {
		return nil
	}
	parameters, _ := info.doc["Parameters"].([]any)
	for _, p := range parameters {
		if p, ok := p.(Doc); ok && p["Name"] == "ResetType" {
			return stringsIn(p["AllowableValues"])
		}
	}
	return nil
}

func (s *Server) reset(e *document, kind string) *Answer {
	if allowed := s.resetTypes(e); allowed != nil && !slices.Contains(allowed, kind) {
		return Problem(http.StatusBadRequest, "Base.1.8.ActionParameterNotSupported", "The reset type is not supported.", "ResetType", kind)
	}
	s.resets = append(s.resets, kind)
	if _, dated := e.doc["LastResetTime"]; dated {
		e.doc["LastResetTime"] = time.Date(2026, 1, 1, 0, 0, len(s.resets), 0, time.UTC).Format(time.RFC3339)
	}
	now := e.power[len(e.power)-1]
	var to []string
	switch kind {
	case "On", "ForceOn":
		to = []string{"On"}
	case "ForceOff", "GracefulShutdown":
		to = []string{"Off"}
	case "PowerCycle":
		to = []string{"Off", "Off", "On"}
	case "PushPowerButton":
		to = []string{map[string]string{"On": "Off", "Off": "On"}[now]}
	default:
		return Say(http.StatusNoContent, nil)
	}
	e.power = append(slices.Repeat([]string{now}, s.Lag+1), to...)
	s.enterPower(e)
	return Say(http.StatusNoContent, nil)
}

// Power is a machine's state as the next read shows it.
func (s *Server) Power(system string) string {
	return fmt.Sprint(s.Get(system)["PowerState"])
}

func (s *Server) insert(e *document, body Doc) *Answer {
	image, _ := body["Image"].(string)
	switch {
	case image == "":
		return Problem(http.StatusBadRequest, "Base.1.8.ActionParameterMissing", "The parameter Image is missing.", "InsertMedia", "Image")
	case e.doc["Inserted"] == true:
		return Problem(http.StatusBadRequest, "Base.1.8.ResourceInUse", "The virtual drive holds media already.")
	}
	e.version++
	merge(e.doc, Doc{"Image": image, "Inserted": true, "ConnectedVia": "URI"})
	return Say(http.StatusNoContent, nil)
}

func (s *Server) eject(e *document) {
	e.version++
	merge(e.doc, Doc{"Image": nil, "Inserted": false, "ConnectedVia": "NotConnected"})
}

type gone struct{}

// Gone is the value of a property that Edit and Lie take out.
var Gone = gone{}

// merge puts the properties of change into d; objects are merged, all else is replaced.
func merge(d, change Doc) {
	for name, value := range change {
		inner, object := value.(Doc)
		old, within := d[name].(Doc)
		switch {
		case value == any(Gone):
			delete(d, name)
		case object && within:
			merge(old, inner)
		case object: // not the change's own, which may be a table's
			fresh := Doc{}
			merge(fresh, inner)
			d[name] = fresh
		default:
			d[name] = value
		}
	}
}

// clone copies by way of JSON, so that every document has JSON's own types.
func clone(d Doc) (copied Doc) {
	raw, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(raw, &copied)
	}
	if err != nil {
		panic(err)
	}
	return copied
}

// Link is a reference.
func Link(path string) Doc { return Doc{"@odata.id": path} }

// linkIn follows names into a document and gives the reference that stands there; empty where there is none.
func linkIn(d Doc, names ...string) string {
	for _, n := range names {
		d, _ = d[n].(Doc)
	}
	path, _ := d["@odata.id"].(string)
	return path
}

// stringsIn is a list of strings; nil where it is something else.
func stringsIn(v any) (list []string) {
	switch v := v.(type) {
	case []string:
		return v
	case []any:
		for _, item := range v {
			list = append(list, fmt.Sprint(item))
		}
	}
	return list
}
