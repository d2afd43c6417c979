package httpapi

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/principal"
)

// canary is a credential that is looked for in everything that comes out.
const canary = "C4n4ry\"'<&>é\\7"

// forms are how the canary would look where it is written as JSON, with and without escapes for HTML, or bare.
func forms(t *testing.T) [][]byte {
	plain := must(encode(canary))(t)
	html := must(json.Marshal(canary))(t)
	return [][]byte{[]byte(canary), bytes.Trim(plain, "\"\n"), bytes.Trim(html, `"`), []byte("C4n4ry"),
		[]byte(hex.EncodeToString([]byte("C4n4ry")))} // as a row shows bytes
}

// TestCredentialsComeOutNowhere is property P8 for the API: whatever is done with a credential, right or wrong, no answer,
// event, log line, row or measure holds it.
func TestCredentialsComeOutNowhere(t *testing.T) {
	w := start(t)
	p := w.estate("acme").pool
	var answers [][]byte
	try := func(r *reply) *reply {
		answers = append(answers, r.body)
		for name, values := range r.header {
			answers = append(answers, []byte(name+": "+strings.Join(values, ",")))
		}
		return r
	}
	in := machine(p)
	in.BMC.Credentials = contract.Credentials{Username: canary, Password: canary}
	n := into[contract.Node](try(w.post("/v1/nodes", in, with("Idempotency-Key", "k")).want(201)))
	try(w.post("/v1/nodes", in, with("Idempotency-Key", "k")).want(201))
	try(w.post("/v1/nodes", in, with("Idempotency-Key", "other")).want(409))
	in.Name = "other"
	try(w.post("/v1/nodes", in, with("Idempotency-Key", "k")).want(400))
	in.BMC.Driver, in.BMC.TLS = "magic", &contract.TLSPolicy{Mode: "x", Fingerprint: "y"}
	try(w.post("/v1/nodes", in).want(400))
	valid := string(must(encode(in))(t))
	secret := string(bytes.TrimSpace(must(encode(canary))(t)))
	for _, wrong := range []string{
		strings.ReplaceAll(valid, secret, "["+secret+"]"),
		strings.ReplaceAll(valid, secret, `{"x":`+secret+"}"),
		strings.Replace(valid, `"poolId"`, `"extra":`+secret+`,"poolId"`, 1),
		strings.Replace(valid, `"address":"`, `"address":"https://u:C4n4ry@`, 1),
		strings.Replace(valid, p, canaryID, 1),
		valid + secret,
		valid[:len(valid)-10] + secret,
		secret,
	} {
		try(w.post("/v1/nodes", wrong).want(400))
	}
	for _, path := range []string{
		"/v1/nodes/" + n.ID, "/v1/nodes/" + n.ID + "?at=" + decimal(n.Position), "/v1/nodes", "/v1/doctor", "/v1/audit/log",
		"/v1/nodes/" + n.ID + "/history?minPosition=" + decimal(n.Position), "/v1/nodes/" + n.ID + "/replay",
		"/v1/audit/head",
	} {
		try(w.get(path).want(200))
	}
	try(w.get("/v1/nodes/C4n4ry").want(400))
	try(w.get("/v1/nodes?pool=C4n4ry&state=C4n4ry&cursor=C4n4ry&limit=C4n4ry&at=C4n4ry").want(400))
	try(w.get("/v1/C4n4ry").want(404))
	try(w.get("/v1/nodes", as("C4n4ry")).want(401))
	try(w.post("/v1/nodes/"+n.ID+"/cordon", nil, with("If-Match", "C4n4ry")).want(400))
	w.searched(t, answers)
}

// canaryID is a credential in the place of an id.
const canaryID = "C4n4ry"

func (w *world) searched(t *testing.T, answers [][]byte) {
	t.Helper()
	events, _, err := w.store.ReadAll(t.Context(), 0, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		answers = append(answers, e.Data, e.RawMeta, []byte(e.Stream))
	}
	answers = append(answers, []byte(w.logs.String()), []byte(strings.Join(w.seen.served, "\n")), w.rows(t))
	for _, form := range forms(t) {
		for _, text := range answers {
			if at := bytes.Index(text, form); at >= 0 {
				t.Errorf("the credential is in %s", text[max(0, at-80):min(len(text), at+80)])
			}
		}
	}
}

// rows is everything that the database holds, as text.
func (w *world) rows(t *testing.T) []byte {
	t.Helper()
	tables := must(w.pool.Query(t.Context(), `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'`))(t)
	var names []string
	for tables.Next() {
		var name string
		if err := tables.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	tables.Close()
	var all bytes.Buffer
	for _, name := range names {
		var text string
		err := w.pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(t::text, E'\n'), '') FROM `+name+` t`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(text)
	}
	return all.Bytes()
}

// panicking is an authorizer with a bug.
type panicking struct{ commands.Authorizer }

func (panicking) Allow(actor commands.Actor, _ principal.Action, _ commands.Resource) error {
	if actor.System {
		return nil
	}
	panic("C4n4ry")
}

func TestPanicsTellNothing(t *testing.T) {
	w := start(t)
	node := w.enroll(w.estate("acme").pool).ID
	w.api.authorizer = panicking{}
	p := w.get("/v1/nodes/"+node).problem(http.StatusInternalServerError, "INTERNAL")
	if strings.Contains(p.Detail, "C4n4ry") || strings.Contains(w.logs.String(), "C4n4ry") {
		t.Fatalf("%+v\n%s", p, w.logs.String())
	}
	if !strings.Contains(w.logs.String(), "a handler panicked") {
		t.Fatal("the log tells nothing of the panic")
	}
}

func TestAddressForms(t *testing.T) {
	w := start(t)
	p := w.estate("acme").pool
	first := machine(p)
	first.BMC.Address = "https://BMC-7.Example:443/redfish/v1/"
	w.post("/v1/nodes", first).want(201)
	for _, same := range []string{"bmc-7.example", "bmc-7.example.", "BMC-7.EXAMPLE:443", "https://bmc-7.example/", "bmc-7.example:443"} {
		in := machine(p)
		in.BMC.Address = same
		w.post("/v1/nodes", in).problem(409, "CONFLICT")
	}
	six := machine(p)
	six.BMC.Address = "2001:DB8::7"
	w.post("/v1/nodes", six).want(201)
	six.BMC.Address = "[2001:db8:0::7]:443"
	w.post("/v1/nodes", six).problem(409, "CONFLICT")
	for _, good := range []string{"fe80::1%eth0", "[fe80::2%25eth0]", "10.9.9.9:8443", "http://10.9.9.10/path"} {
		in := machine(p)
		in.BMC.Address = good
		w.post("/v1/nodes", in).want(201)
	}
	for _, bad := range []string{
		"", " ", "10.0.0", "10.0.0.256", "ftp://x", "https://", "a b", "host:0", "host:99999", "[::1", "::", "https://u:p@h", "h?x=1",
	} {
		in := machine(p)
		in.BMC.Address = bad
		w.post("/v1/nodes", in).issues("body.bmc.address")
	}
	in := machine(p)
	in.MACs = []string{"02:00:00:00:00:01", "0200.0000.0002", "02-00-00-00-00-03", "020000000004"}
	w.post("/v1/nodes", in).want(201)
	in = machine(p)
	in.MACs = []string{"02:00:00:00:01:01", "02-00-00-00-01-01", "x", "02:00:00:00:00", "ff:ff:ff:ff:ff:ff"}
	w.post("/v1/nodes", in).issues("body.macs[1]", "body.macs[2]", "body.macs[3]", "body.macs[4]")
	for _, odd := range []string{"1234567890", " spaces ", "quote\"s'", "日本語", "\t", "-", strings.Repeat("x", 256)} {
		in := machine(p)
		in.BMC.Credentials.Password = odd
		w.post("/v1/nodes", in).want(201)
	}
	for _, bad := range []string{"", strings.Repeat("x", 257), "nul\x00"} {
		in := machine(p)
		in.BMC.Credentials.Password = bad
		w.post("/v1/nodes", in).issues("body.bmc.credentials.password")
	}
}
