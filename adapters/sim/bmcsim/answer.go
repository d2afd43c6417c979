package bmcsim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// doc is one Redfish document.
type doc map[string]any

// answer is what a request comes to. body is sent as it is.
type answer struct {
	status int
	header map[string]string
	body   []byte
}

func empty() answer { return answer{status: http.StatusNoContent} }

// reply answers with a document.
func reply(status int, d doc) answer { return answer{status: status, body: encode(d)} }

func encode(d doc) []byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // documents are made of strings, numbers and booleans
	}
	return b
}

// message is one entry of @Message.ExtendedInfo.
func message(id, text string, args ...string) doc {
	if args == nil {
		args = []string{}
	}
	return doc{
		"@odata.type": "#Message.v1_1_1.Message", "MessageId": id, "Message": text, "MessageArgs": args,
		"Severity": "Warning", "Resolution": "Correct the request and send it again.",
	}
}

// refuse answers with an error of the standard's registry.
func refuse(status int, key, text string, args ...string) answer {
	return failure(status, message("Base.1.13."+key, text, args...))
}

// refuseOwn answers with an error of the vendor's registry.
func (s *Service) refuseOwn(status int, key, text string, args ...string) answer {
	return failure(status, message(s.p.registry+"."+key, text, args...))
}

func failure(status int, m doc) answer {
	return reply(status, doc{"error": doc{
		"code": m["MessageId"], "message": m["Message"], "@Message.ExtendedInfo": []doc{m},
	}})
}

func (a answer) with(key, value string) answer {
	header := map[string]string{key: value}
	for k, v := range a.header {
		header[k] = v
	}
	a.header = header
	return a
}

// write sends the answer, with a body for anything but HEAD.
func (a answer) write(w http.ResponseWriter, method string) {
	h := w.Header()
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-cache")
	for k, v := range a.header {
		h.Set(k, v)
	}
	if len(a.body) > 0 {
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if method != http.MethodHead {
		_, _ = w.Write(a.body) // a client that is gone gets nothing
	}
}

// strip gives the bare value of an entity tag.
func strip(tag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
}
