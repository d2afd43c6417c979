package httpapi

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
)

func TestAgentsAreSeenAndRevoked(t *testing.T) {
	w := start(t)
	e, theirs := w.estate("acme"), w.estate("globex")
	n := w.enroll(e.pool)
	w.runs(n, "metal-enroll")
	j := w.ramdisk(n, w.discovery(n).Token)
	w.heard(j, 0, "", "cmd_1", "cmd_2")
	path := "/v1/agents/" + j.id.String()
	a := into[contract.Agent](w.get(path, as(e.token)).want(200))
	if a.Node != n.ID || a.Role != "ramdisk" || !a.Connected || a.LastContact == nil || len(a.Doing) != 2 || a.BootID != j.boot || a.Revoked != "" {
		t.Fatalf("%+v", a)
	}
	for query, want := range map[string]int{
		"": 1, "role=ramdisk": 1, "role=site": 0, "node=" + n.ID: 1, "site=" + e.site: 1,
	} {
		if list := into[contract.List[contract.Agent]](w.get("/v1/agents?"+query, as(e.token)).want(200)); len(list.Items) != want {
			t.Errorf("%s: %+v", query, list)
		}
	}
	w.get("/v1/agents?site="+theirs.site, as(e.token)).problem(404, "NOT_FOUND")
	w.get("/v1/agents?role=os&site=x&node=y&limit=0").issues("query.role", "query.limit")
	w.get("/v1/agents?site=x&node=y").issues("query.site", "query.node")
	w.get("/v1/agents?cursor=x").issues("query.cursor")
	w.get("/v1/agents/x").issues("path.id")
	w.post("/v1/agents/x/revoke", nil).issues("path.id")
	if list := into[contract.List[contract.Agent]](w.get("/v1/agents", as(theirs.token)).want(200)); len(list.Items) > 0 {
		t.Fatalf("%+v", list)
	}
	w.get(path, as(theirs.token)).problem(404, "NOT_FOUND")
	w.post(path+"/revoke", nil, as(theirs.token)).problem(404, "NOT_FOUND")
	_, reader := w.caller(e.tenant, "tenant", e.tenant, "compute:nodes:read", "compute:sites:read")
	w.post(path+"/revoke", nil, as(reader)).problem(403, "FORBIDDEN")

	gone := w.post(path+"/revoke", contract.Reason{Reason: "stolen"}, as(e.token), with("Idempotency-Key", "k")).want(200)
	if got := into[contract.Agent](gone); got.Revoked != "stolen" {
		t.Fatalf("%+v", got)
	}
	again := w.post(path+"/revoke", contract.Reason{Reason: "stolen"}, as(e.token), with("Idempotency-Key", "k")).want(200)
	if !bytes.Equal(again.body, gone.body) {
		t.Fatalf("%s", again.body)
	}
	read := w.get(path+"?minPosition="+gone.header.Get(contract.HeaderPosition), as(e.token)).want(200)
	if got := into[contract.Agent](read); got.Revoked != "stolen" {
		t.Fatalf("%+v", got)
	}
}

func TestJoinTokensAreMadeAndEnded(t *testing.T) {
	w := start(t)
	e, theirs := w.estate("acme"), w.estate("globex")
	n := w.enroll(e.pool)
	in := contract.NewJoinToken{Role: "site", Site: e.site, TTL: 60, MaxUses: 3, Expect: &contract.JoinExpect{Serial: "S1"}}
	made := w.post("/v1/join-tokens", in, as(e.token)).want(201)
	tok := into[contract.JoinToken](made)
	if !strings.HasPrefix(tok.Token, tok.ID+".") || tok.MaxUses != 3 || tok.Uses != 0 || tok.Expect.Serial != "S1" || tok.Tenant != e.tenant ||
		time.Until(tok.ExpiresAt) > time.Minute {
		t.Fatalf("%s", made.body)
	}
	read := into[contract.JoinToken](w.get(made.header.Get("Location"), as(e.token)).want(200))
	if tok.Gateway != "https://gateway.example:8444" || tok.CASHA256 != strings.Repeat("ca", 32) {
		t.Fatalf("what the agent needs besides the token: %s", made.body)
	}
	if read.Token != "" || read.Gateway != "" || read.ID != tok.ID || read.Expect.Serial != "S1" {
		t.Fatalf("%+v", read)
	}
	into[contract.JoinToken](w.post("/v1/join-tokens", contract.NewJoinToken{Role: "node", Pool: e.pool}, as(e.token)).want(201))
	into[contract.JoinToken](w.post("/v1/join-tokens", contract.NewJoinToken{Role: "discovery", Node: n.ID}, as(e.token)).want(201))
	for query, want := range map[string]int{
		"": 3, "site=" + e.site: 3, "node=" + n.ID: 1, "tenant=" + e.tenant: 3,
	} {
		var got []string
		for cursor, more := "", true; more; more = cursor != "" {
			page := w.get("/v1/join-tokens?limit=2&"+query+"&cursor="+url.QueryEscape(cursor), as(e.token)).want(200)
			list := into[contract.List[contract.JoinToken]](page)
			for _, i := range list.Items {
				if i.Token != "" {
					t.Fatalf("a list gives a token: %+v", i)
				}
				got = append(got, i.ID)
			}
			cursor = list.Next
		}
		if len(got) != want || len(slices.Compact(slices.Clone(got))) != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	path := "/v1/join-tokens/" + tok.ID
	w.post(path+"/revoke", nil, as(e.token), with("If-Match", `"9"`)).problem(409, "CONFLICT")
	ended := into[contract.JoinToken](w.post(path+"/revoke", contract.Reason{Reason: "done"}, as(e.token), with("If-Match", `"1"`)).want(200))
	if !ended.Revoked || ended.Token != "" {
		t.Fatalf("%+v", ended)
	}
	if _, err := w.service.Join(t.Context(), system(), commands.JoinFacts{Token: tok.Token, Role: "site", PublicKey: []byte("k")}); err == nil {
		t.Fatal("an ended token lets an agent in")
	}
	w.get(path, as(theirs.token)).problem(404, "NOT_FOUND")
	_, reader := w.caller(e.tenant, "site", e.site, "compute:tokens:read", "compute:sites:read")
	w.get(path, as(reader)).want(200)
	w.post(path+"/revoke", nil, as(reader)).problem(403, "FORBIDDEN")
	w.post("/v1/join-tokens", in, as(reader)).problem(403, "FORBIDDEN")
}

func TestBadJoinTokens(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	for body, paths := range map[string][]string{
		`{}`:                           {"body.role"},
		`{"role":"site"}`:              {"body.siteId"},
		`{"role":"node"}`:              {"body.poolId"},
		`{"role":"discovery"}`:         {"body.nodeId"},
		`{"role":"provisioned"}`:       {"body.nodeId"},
		`{"role":"king","siteId":"x"}`: {"body.siteId"},
		`{"role":"site","siteId":"x","poolId":"y","nodeId":"z"}`: {"body.siteId", "body.poolId", "body.nodeId"},
		`{"role":"king"}`: {"body.role"},
		`{"role":"site","siteId":"` + e.site + `","ttlSeconds":0,"maxUses":0}`:         {"body.ttlSeconds", "body.maxUses"},
		`{"role":"site","siteId":"` + e.site + `","ttlSeconds":18446747673}`:           {"body.expiresAt"}, // what an int64 of nanoseconds makes an hour of
		`{"role":"site","siteId":"` + e.site + `","token":"x","expect":{"color":"x"}}`: {"body.token", "body.expect.color"},
	} {
		t.Run(body, func(t *testing.T) { w.t = t; w.post("/v1/join-tokens", body).issues(paths...) })
	}
	w.t = t
	w.get("/v1/join-tokens?tenant=x&site=y&node=z").issues("query.tenant", "query.site", "query.node")
	w.get("/v1/join-tokens?cursor=x").issues("query.cursor")
	w.get("/v1/join-tokens/x").issues("path.id")
	w.post("/v1/join-tokens/x/revoke", nil, with("If-Match", "x")).issues("path.id", "header.If-Match")
}

// A join token's text is in the answer to its creation, and nowhere else: in no other answer, event, log line or row. Its
// answer is kept for its Idempotency-Key, sealed.
func TestJoinTokenComesOutOnce(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	w.runs(n, "metal-enroll")
	body := contract.NewJoinToken{Role: "discovery", Node: n.ID}
	first := into[contract.JoinToken](w.post("/v1/join-tokens", body, as(e.token), with("Idempotency-Key", "k")).want(201))
	again := into[contract.JoinToken](w.post("/v1/join-tokens", body, as(e.token), with("Idempotency-Key", "k")).want(201))
	if again.Token != first.Token {
		t.Fatal("the same key gives another token")
	}
	w.ramdisk(n, first.Token)
	_, secret, _ := strings.Cut(first.Token, ".")
	var texts [][]byte
	for _, path := range []string{
		"/v1/join-tokens", "/v1/join-tokens/" + first.ID, "/v1/agents", "/v1/nodes/" + n.ID, "/v1/nodes/" + n.ID + "/history", "/v1/audit/log",
		"/v1/workflows", "/v1/doctor",
	} {
		texts = append(texts, w.get(path).want(200).body)
	}
	texts = append(texts, w.post("/v1/join-tokens/"+first.ID+"/revoke", nil).want(200).body, w.rows(t), []byte(w.logs.String()))
	events, _, err := w.store.ReadAll(t.Context(), 0, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		texts = append(texts, ev.Data, ev.RawMeta)
	}
	for _, text := range texts {
		if at := bytes.Index(text, []byte(secret)); at >= 0 {
			t.Errorf("the token is in %s", text[max(0, at-80):min(len(text), at+20)])
		}
	}
}

func TestStepsAreListed(t *testing.T) {
	w := start(t)
	_, token := w.caller(w.estate("acme").tenant, "tenant", w.estate("other").tenant, "compute:nodes:read")
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		page := into[contract.List[contract.StepInfo]](w.get("/v1/steps?limit=7&cursor="+url.QueryEscape(cursor), as(token)).want(200))
		for _, s := range page.Items {
			if s.Summary == "" || s.Timeout == "" || s.RunsOn == "" {
				t.Errorf("%+v", s)
			}
			if s.ID == "disk.wipe" && (!slices.Equal(s.Sends, []string{"disk.wipe"}) || s.RunsOn != "ramdisk") {
				t.Errorf("%+v", s)
			}
			got = append(got, s.ID)
		}
		cursor = page.Next
	}
	if !slices.IsSorted(got) || !slices.Contains(got, "disk.wipe") || len(got) != len(w.api.steps) {
		t.Errorf("%v", got)
	}
	w.get("/v1/steps?cursor=x&fields=secret&limit=0").issues("query.limit")
	w.get("/v1/steps?cursor=x").issues("query.cursor")
	w.get("/v1/steps?fields=secret").issues("query.fields[0]")
}
