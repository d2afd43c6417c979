package httpapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/id"
)

// web is a valid profile of an id and a version, with fields of its own.
func web(name string, version int, more ...string) json.RawMessage {
	text := fmt.Sprintf(`{"id":%q,"version":%d,"target":"metal","image":"ubuntu@24.04","steps":[{"use":"power.setPower","with":{"action":"on"},"on":"site"}]`,
		name, version)
	for _, field := range more {
		text += "," + field
	}
	return json.RawMessage(text + "}")
}

func (w *world) profile(e estate, doc json.RawMessage, o ...option) contract.ProfileDocument {
	w.t.Helper()
	return into[contract.ProfileDocument](w.post("/v1/profiles", contract.NewProfile{Tenant: e.tenant, Profile: doc}, o...).want(201))
}

func TestProfileIsStoredReplacedAndFrozen(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	made := w.post("/v1/profiles", contract.NewProfile{Tenant: e.tenant, Profile: web("web", 1)}, as(e.token)).want(201)
	first := into[contract.ProfileDocument](made)
	if first.Tenant != e.tenant || first.Used || first.Public || first.Version != 1 || first.CreatedAt == nil {
		t.Fatalf("%s", made.body)
	}
	read := w.get(made.header.Get("Location"), as(e.token)).want(200)
	if got := into[contract.ProfileDocument](read); string(made.body) != string(read.body) || read.header.Get("ETag") != `"1"` {
		t.Fatalf("made %s, read %s (%+v)", made.body, read.body, got)
	}
	second := w.profile(e, web("web", 1, `"description":"changed"`), as(e.token))
	if second.Version != 2 || second.Digest == first.Digest || !second.CreatedAt.Equal(*first.CreatedAt) {
		t.Fatalf("%+v after %+v", second, first)
	}
	if again := w.profile(e, web("web", 1, `"description":"changed"`), as(e.token)); again.Version != 2 {
		t.Fatalf("the same again: %+v", again)
	}
	tenant := must(id.Parse[id.Tenant](e.tenant))(t)
	found := must(w.service.Profile(t.Context(), tenant, "web", 1))(t)
	must(w.service.MarkProfileUsed(t.Context(), commands.Call{}, found, id.Of[id.Workflow]([16]byte{1})))(t)
	w.post("/v1/profiles", contract.NewProfile{Tenant: e.tenant, Profile: web("web", 1)}, as(e.token)).problem(409, "CONFLICT")
	head := must(w.store.Head(t.Context()))(t)
	used := into[contract.ProfileDocument](w.get("/v1/profiles/web?minPosition="+head.String(), as(e.token)).want(200))
	if !used.Used || used.Version != 3 {
		t.Fatalf("%+v", used)
	}
}

func TestProfileOfAnIdempotencyKey(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	body := contract.NewProfile{Tenant: e.tenant, Profile: web("web", 1)}
	first := w.post("/v1/profiles", body, with("Idempotency-Key", "k")).want(201)
	again := w.post("/v1/profiles", body, with("Idempotency-Key", "k")).want(201)
	if string(first.body) != string(again.body) || again.header.Get(contract.HeaderReplayed) != "true" {
		t.Fatalf("%s, then %s", first.body, again.body)
	}
	body.Profile = web("web", 2)
	w.post("/v1/profiles", body, with("Idempotency-Key", "k")).issues("header.Idempotency-Key")
}

func TestBadProfiles(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	for name, c := range map[string]struct {
		doc   string
		paths []string
		more  []string // that validate finds besides
	}{
		"no object": {`[]`, []string{"", "id", "target", "version"}, nil},
		"fields": {
			`{"id":"A b","version":0,"target":"moon","color":"red","steps":[{"use":"power.setPower","timeout":"soon"}]}`,
			[]string{"id", "version", "target", "color", "steps[0].timeout"}, []string{"steps[0].with.action"},
		},
		"steps twice": {
			`{"id":"a","version":1,"target":"metal","steps":[{"use":"x.y","id":"s"},{"use":"x.y","id":"s"}]}`,
			[]string{"steps[1].id"}, []string{"steps[0].use", "steps[1].use"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			p := w.post("/v1/profiles", contract.NewProfile{Tenant: e.tenant, Profile: json.RawMessage(c.doc)}).problem(422, "INVALID_CONFIG")
			checkIssues(t, p.Issues, c.paths)
			verdict := into[contract.Verdict](w.post("/v1/profiles/validate", contract.TryProfile{Profile: json.RawMessage(c.doc)}).want(200))
			if verdict.Valid {
				t.Fatal("valid")
			}
			checkIssues(t, verdict.Issues, append(c.paths, c.more...))
			w.post("/v1/profiles/render", contract.TryProfile{Profile: json.RawMessage(c.doc)}).problem(422, "INVALID_CONFIG")
		})
	}
	w.t = t
	w.post("/v1/profiles", `{"tenantId":"x","profile":{}}`).issues("body.tenantId")
	w.post("/v1/profiles", `{}`).issues("body.tenantId", "body.profile")
	w.post("/v1/profiles", `{"tenantId":"`+e.tenant+`","profile":{"id":"a","id":"b"}}`).issues("body.profile.id")
	w.post("/v1/profiles/validate", `{"profile":{},"x":1}`).issues("body.x")
	w.get("/v1/profiles/web?version=0").issues("query.version")
	w.get("/v1/profiles/web?version=x&color=red").issues("query.version", "query.color")
	w.get("/v1/profiles/web?tenant=x").issues("query.tenant")
	w.get("/v1/profiles?tenant=x").issues("query.tenant")
	w.get("/v1/profiles?cursor=x").issues("query.cursor")
	w.get("/v1/profiles?limit=0&fields=secret").issues("query.limit")
}

func checkIssues(t *testing.T, got []contract.Issue, want []string) {
	t.Helper()
	var paths []string
	for _, i := range got {
		paths = append(paths, i.Path)
	}
	slices.Sort(paths)
	slices.Sort(want)
	if !slices.Equal(paths, want) {
		t.Fatalf("issues at %q, want %q", paths, want)
	}
}

// What does not resolve is found without storing anything; what does is shown with all that was left out.
func TestProfilesAreTried(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	head := must(w.store.Head(t.Context()))(t)
	try := func(doc string, hardware string) contract.TryProfile {
		return contract.TryProfile{Profile: json.RawMessage(doc), HardwareProfile: hardware}
	}
	wrong := try(`{"id":"a","version":1,"target":"metal","steps":[{"use":"no.such"},{"use":"power.setPower","on":"site","with":{"action":"up"}}]}`, "")
	checkIssues(t, into[contract.Verdict](w.post("/v1/profiles/validate", wrong, as(e.token)).want(200)).Issues,
		[]string{"steps[0].use", "steps[1].with.action"})
	checkIssues(t, w.post("/v1/profiles/render", wrong).problem(422, "INVALID_CONFIG").Issues,
		[]string{"steps[0].use", "steps[1].with.action"})
	checkIssues(t, into[contract.Verdict](w.post("/v1/profiles/validate", try(string(web("w", 1)), "no-such")).want(200)).Issues,
		[]string{"hardwareProfile"})
	if v := into[contract.Verdict](w.post("/v1/profiles/validate", try(string(web("w", 1)), "dell-r760")).want(200)); !v.Valid {
		t.Fatalf("%+v", v)
	}
	raid := `{"id":"a","version":1,"target":"metal","steps":[{"use":"power.reseat","on":"site","onFailure":"continue"}],"cleanup":[{"use":"boot.clear"}]}`
	out := into[contract.Rendered](w.post("/v1/profiles/render", try(raid, "dell-r760"), as(e.token)).want(200))
	if len(out.Steps) != 2 || out.Steps[0].Driver != "ipmi" || out.Steps[0].Command != "driver.invoke" ||
		out.Steps[0].Timeout != "10m" || out.Steps[0].OnFailure != "continue" || out.Steps[1].Phase != "cleanup" {
		t.Fatalf("%+v", out)
	}
	if now := must(w.store.Head(t.Context()))(t); now != head {
		t.Fatal("trying a profile wrote to the log")
	}
	_, blind := w.caller(e.tenant, "tenant", e.tenant, "compute:nodes:read")
	for _, path := range []string{"/v1/profiles/validate", "/v1/profiles/render"} {
		if p := w.post(path, try(raid, ""), as(blind)).problem(403, "FORBIDDEN"); p.Details["action"] != "compute:profiles:read" {
			t.Fatalf("%+v", p)
		}
	}
}

// What id@version means: a tenant's own, else the public one, else the shipped one; other tenants' do not exist.
func TestWhoFindsWhichProfile(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	w.profile(mine, web("web", 1))
	w.profile(theirs, web("hidden", 1))
	w.profile(mine, web("image-host", 1))                    // over the shipped one
	w.profile(theirs, web("shared", 2, `"public":true`))     // by the administrator
	w.profile(mine, web("shared", 2, `"description":"own"`)) // over the public one
	w.profile(theirs, web("shared", 3, `"public":true`))
	for path, want := range map[string]string{
		"web?version=1":                         mine.tenant,
		"image-host":                            mine.tenant,
		"image-host?tenant=builtin":             contract.Builtin,
		"shared?version=2":                      mine.tenant,
		"shared":                                theirs.tenant, // the newest is public
		"metal-release":                         contract.Builtin,
		"metal-release?version=1":               contract.Builtin,
		"web?tenant=" + mine.tenant:             mine.tenant,
		"hidden":                                "",
		"web?version=2":                         "",
		"nothing":                               "",
		"web?tenant=builtin":                    "",
		"metal-release?version=7":               "",
		"hidden?tenant=" + theirs.tenant:        "",
		"shared?tenant=" + theirs.tenant:        "",
		"metal-release?tenant=" + theirs.tenant: "",
	} {
		got := w.get("/v1/profiles/"+path, as(mine.token))
		if want == "" {
			got.problem(404, "NOT_FOUND")
			continue
		}
		if p := into[contract.ProfileDocument](got.want(200)); p.Tenant != want || len(p.Document) == 0 {
			t.Errorf("%s is of %s, want %s", path, p.Tenant, want)
		}
	}
	if p := into[contract.ProfileDocument](w.get("/v1/profiles/web?tenant=" + mine.tenant).want(200)); p.Tenant != mine.tenant {
		t.Fatalf("the administrator does not find it: %+v", p)
	}
	_, blind := w.caller(mine.tenant, "tenant", mine.tenant, "compute:nodes:read")
	for _, path := range []string{"web", "shared", "metal-release", "image-host?tenant=builtin"} {
		w.get("/v1/profiles/"+path, as(blind)).problem(404, "NOT_FOUND")
	}
	if list := into[contract.List[contract.ProfileDocument]](w.get("/v1/profiles", as(blind)).want(200)); len(list.Items) > 0 {
		t.Fatalf("%+v", list)
	}
	_, writer := w.caller(mine.tenant, "tenant", mine.tenant, "compute:profiles:write", "compute:tenants:read")
	w.get("/v1/profiles/web?tenant="+mine.tenant, as(writer)).problem(404, "NOT_FOUND")
	w.post("/v1/profiles", contract.NewProfile{Tenant: mine.tenant, Profile: web("p", 1, `"public":true`)}, as(writer)).problem(403, "FORBIDDEN")
	w.post("/v1/profiles", contract.NewProfile{Tenant: theirs.tenant, Profile: web("p", 1)}, as(writer)).problem(404, "NOT_FOUND")
	w.post("/v1/profiles", contract.NewProfile{Tenant: mine.tenant, Profile: web("p", 1)}, as(blind)).problem(404, "NOT_FOUND")
	_, reader := w.caller(mine.tenant, "tenant", mine.tenant, "compute:profiles:read", "compute:tenants:read")
	w.post("/v1/profiles", contract.NewProfile{Tenant: mine.tenant, Profile: web("p", 1)}, as(reader)).problem(403, "FORBIDDEN")
}

func TestProfilesAreListedByPages(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	for version := range 3 {
		w.profile(mine, web("web", version+1))
	}
	w.profile(theirs, web("hidden", 1))
	w.profile(theirs, web("shared", 1, `"public":true`))
	shipped := len(w.service.ShippedProfiles())
	for query, want := range map[string]int{
		"": 4 + shipped, "id=web": 3, "id=metal-release": 1, "id=hidden": 0, "tenant=builtin": shipped, "tenant=builtin&id=image-host": 1,
		"tenant=" + mine.tenant: 3,
	} {
		for _, size := range []int{1, 2, 3, 100} {
			var got []string
			for cursor, more := "", true; more; more = cursor != "" {
				page := into[contract.List[contract.ProfileDocument]](w.get(fmt.Sprintf("/v1/profiles?%s&limit=%d&cursor=%s", query, size, url.QueryEscape(cursor)),
					as(mine.token)).want(200))
				if len(page.Items) > size || page.Next != "" && len(page.Items) != size {
					t.Fatalf("%s: a page of %d of %d", query, len(page.Items), size)
				}
				for _, p := range page.Items {
					if len(p.Document) > 0 || p.ID == "hidden" {
						t.Fatalf("%+v", p)
					}
					got = append(got, fmt.Sprintf("%s@%d", p.ID, p.ProfileVersion))
				}
				cursor = page.Next
			}
			if len(got) != want || len(slices.Compact(slices.Sorted(slices.Values(got)))) != want {
				t.Errorf("%q by %d: %v, want %d", query, size, got, want)
			}
			if query == "" && !slices.Equal(got[:4], []string{"shared@1", "web@3", "web@2", "web@1"}) {
				t.Errorf("order %v", got)
			}
		}
	}
	w.get("/v1/profiles?tenant="+theirs.tenant, as(mine.token)).want(200) // the public one of theirs
	if got := string(w.get("/v1/profiles?fields=profileId&id=web&limit=1").want(200).body); !strings.HasPrefix(got, `{"items":[{"profileId":"web"}]`) {
		t.Errorf("%s", got)
	}
}
