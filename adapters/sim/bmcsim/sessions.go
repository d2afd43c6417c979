package bmcsim

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

const (
	sessionsPath   = root + "/SessionService/Sessions"
	sessionTimeout = 30 * time.Minute
	lockoutTime    = 5 * time.Minute
)

// session is one login.
type session struct {
	id, token string
	used      time.Time
}

// sessions is every login of a controller.
type sessions struct {
	list     []*session
	most     int
	made     int
	failures int
	locked   time.Time
	opened   int // most that were open at once
}

func (s *sessions) init(most int) { s.most = most }

// login authenticates one request: by session token, or by name and password.
func (s *Service) login(r *http.Request) (string, answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		for _, open := range s.sessions.list {
			if subtle.ConstantTimeCompare([]byte(open.token), []byte(token)) == 1 && now.Sub(open.used) < sessionTimeout {
				open.used = now
				return token, answer{}
			}
		}
		return "", refuse(http.StatusUnauthorized, "NoValidSession", "There is no valid session.")
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		return "", refuse(http.StatusUnauthorized, "NoValidSession", "There is no valid session.").
			with("WWW-Authenticate", `Basic realm="Redfish"`)
	}
	return "", s.credentials(user, password, now)
}

// credentials checks a name and password; too many failures lock everybody out for a time. The caller holds the lock.
func (s *Service) credentials(user, password string, now time.Time) answer {
	if now.Before(s.sessions.locked) {
		return refuse(http.StatusForbidden, "AccountLocked", "The account is locked.")
	}
	if subtle.ConstantTimeCompare([]byte(user), []byte(s.facts.Username)) != 1 ||
		subtle.ConstantTimeCompare([]byte(password), []byte(s.facts.Password)) != 1 {
		s.sessions.failures++
		if s.sessions.failures >= s.p.lockout {
			s.sessions.failures, s.sessions.locked = 0, now.Add(lockoutTime)
		}
		return refuse(http.StatusUnauthorized, "ResourceAtUriUnauthorized", "Access was denied.")
	}
	s.sessions.failures = 0
	return answer{}
}

// openSession is a login.
func (s *Service) openSession(c call) answer {
	var body struct{ UserName, Password string }
	if err := json.Unmarshal(c.body, &body); err != nil {
		return refuse(http.StatusBadRequest, "MalformedJSON", "UserName and Password are text.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if a := s.credentials(body.UserName, body.Password, now); a.status != 0 {
		return a
	}
	s.sessions.drop(func(open *session) bool { return now.Sub(open.used) >= sessionTimeout })
	if len(s.sessions.list) >= s.sessions.most {
		if s.p.name == Dell {
			return s.refuseOwn(http.StatusServiceUnavailable, "RAC0218", "The maximum number of user sessions is reached.")
		}
		return refuse(http.StatusServiceUnavailable, "SessionLimitExceeded", "The session limit is reached.")
	}
	s.sessions.made++
	id := strconv.Itoa(s.sessions.made)
	sum := sha256.Sum256([]byte("session\x00" + s.facts.Password + "\x00" + s.facts.UUID + "\x00" + id))
	open := &session{id: id, token: hex.EncodeToString(sum[:16]), used: now}
	s.sessions.list = append(s.sessions.list, open)
	s.sessions.opened = max(s.sessions.opened, len(s.sessions.list))
	location := s.id(sessionsPath + "/" + id)
	if s.p.sessionFull {
		location = "https://" + s.facts.Host + location
	}
	return reply(http.StatusCreated, s.sessionDoc(open)).with("X-Auth-Token", open.token).with("Location", location)
}

func (s *Service) sessionDoc(open *session) doc {
	return doc{
		"@odata.id": s.id(sessionsPath + "/" + open.id), "@odata.type": "#Session.v1_3_0.Session", "Id": open.id,
		"Name": "User Session", "UserName": s.facts.Username,
	}
}

func (s *sessions) drop(gone func(*session) bool) {
	kept := s.list[:0]
	for _, open := range s.list {
		if !gone(open) {
			kept = append(kept, open)
		}
	}
	clear(s.list[len(kept):])
	s.list = kept
}

// dynamic finds what comes and goes: sessions, tasks, jobs.
func (s *Service) dynamic(key string) *resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.sessions.list {
		if key == s.key(sessionsPath+"/"+open.id) {
			return &resource{doc: func(State) doc { return s.sessionDoc(open) }, volatile: true, remove: func(call) answer {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.sessions.drop(func(o *session) bool { return o == open })
				return empty()
			}}
		}
	}
	for _, t := range s.tasks {
		switch key {
		case s.key(t.path()):
			return &resource{doc: func(State) doc { return t.poll(s) }, volatile: true}
		case s.key(t.path() + "/Monitor"):
			return &resource{doc: func(State) doc { return t.poll(s) }, volatile: true}
		}
	}
	for _, j := range s.jobs {
		if key == s.key(s.jobsPath()+"/"+j.id) {
			return &resource{doc: func(state State) doc { return s.jobDoc(j, state) }}
		}
	}
	return nil
}

// Sessions tells how many logins are open, and how many were at most.
func (s *Service) Sessions() (open, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions.list), s.sessions.opened
}

// sessionList is the collection's document. The caller holds the lock.
func (s *Service) sessionList(State) doc {
	paths := make([]string, 0, len(s.sessions.list))
	for _, open := range s.sessions.list {
		paths = append(paths, sessionsPath+"/"+open.id)
	}
	return doc{
		"@odata.id": s.id(sessionsPath), "@odata.type": "#SessionCollection.SessionCollection", "Name": "Sessions",
		"Members": s.links(paths...), "Members@odata.count": len(paths),
	}
}
