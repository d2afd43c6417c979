package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// edited is a valid enrollment with some of its text replaced.
func edited(t *testing.T, pool string, replace ...string) string {
	t.Helper()
	text := string(must(json.Marshal(machine(pool)))(t))
	changed := strings.NewReplacer(replace...).Replace(text)
	if changed == text {
		t.Fatalf("%q is not in %s", replace, text)
	}
	return changed
}

func TestBadBodies(t *testing.T) {
	w := start(t)
	pool := w.estate("acme").pool
	for name, c := range map[string]struct {
		body  string
		paths []string
	}{
		"nothing":           {"", []string{"body"}},
		"null":              {"null", []string{"body"}},
		"a list":            {"[]", []string{"body"}},
		"cut off":           {`{"poolId":`, []string{"body.poolId"}},
		"trailing garbage":  {edited(t, pool, "}}}", "}}} true"), []string{"body"}},
		"two values":        {"{}{}", []string{"body"}},
		"unknown field":     {edited(t, pool, `"name"`, `"color":"red","name"`), []string{"body.color"}},
		"unknown, nested":   {edited(t, pool, `"address"`, `"port":1,"address"`), []string{"body.bmc.port"}},
		"wrong types":       {edited(t, pool, `"root"`, `7`, `"name":"`, `"macs":["02:00:00:00:00:01",5],"name":"`), []string{"body.bmc.credentials.username", "body.macs[1]"}},
		"missing":           {"{}", []string{"body.poolId", "body.bmc"}},
		"doubled key":       {edited(t, pool, `"address"`, `"address":"x","address"`), []string{"body.bmc.address"}},
		"invalid UTF-8":     {edited(t, pool, "calvin", "cal\xffvin"), []string{"body.bmc.credentials.password"}},
		"half a surrogate":  {edited(t, pool, "calvin", `cal\ud800vin`), []string{"body.bmc.credentials.password"}},
		"wrong prefix":      {edited(t, pool, "pool_", "node_"), []string{"body.poolId"}},
		"null in a string":  {edited(t, pool, `"root"`, "null"), []string{"body.bmc.credentials.username"}},
		"case of a field":   {edited(t, pool, `"name"`, `"Name"`), []string{"body.Name"}},
		"a byte order mark": {"\ufeff" + edited(t, pool, "root", "admin"), []string{"body"}},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.post("/v1/nodes", c.body).issues(c.paths...)
		})
	}
}

func TestBodyLimits(t *testing.T) {
	w := start(t)
	pool := w.estate("acme").pool
	large := edited(t, pool, "machine-", strings.Repeat("a", contract.MaxBody))
	p := w.post("/v1/nodes", large).problem(http.StatusRequestEntityTooLarge, "INVALID_INPUT")
	if p.Issues[0].Path != "body" {
		t.Fatalf("%+v", p)
	}
	deep := strings.Repeat("[", 100_000)
	w.post("/v1/nodes", deep).problem(http.StatusBadRequest, "INVALID_INPUT")
	valid := edited(t, pool, "root", "admin")
	padded := valid + strings.Repeat(" ", contract.MaxBody-len(valid))
	w.post("/v1/nodes", padded).want(http.StatusCreated)
	for _, media := range []string{"text/plain", "application/xml", "application/json; charset=latin1", ";"} {
		w.post("/v1/nodes", valid, with("Content-Type", media)).problem(http.StatusUnsupportedMediaType, "INVALID_INPUT")
	}
	w.post("/v1/nodes", valid, with("Content-Encoding", "gzip")).problem(http.StatusUnsupportedMediaType, "INVALID_INPUT")
	w.send("DELETE", "/v1/principals/x/tokens/y", "{}").issues("body")
}

// A verb without parameters takes nothing or an empty object; one with parameters says what is missing.
func TestVerbBodies(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	for _, body := range []any{nil, "", "{}", " {} "} {
		w.post("/v1/nodes/"+n.ID+"/uncordon", body).want(200)
	}
	w.post("/v1/nodes/"+n.ID+"/uncordon", `{"force":true}`).issues("body.force")
	w.post("/v1/nodes/"+n.ID+"/uncordon", `null`).issues("body")
	w.post("/v1/nodes/"+n.ID+"/deploy", nil).issues("body")
	w.post("/v1/nodes/"+n.ID+"/deploy", `{}`).issues("body.profileId", "body.profileVersion")
	w.post("/v1/nodes/"+n.ID+"/deploy", `{"profileId":"p","profileVersion":1e40}`).issues("body")
	w.post("/v1/nodes/"+n.ID+"/deploy", `{"profileId":"p","profileVersion":1.5}`).issues("body.profileVersion")
	w.post("/v1/nodes/"+n.ID+"/power", `{"action":"explode"}`).issues("body.action")
	w.post("/v1/nodes/"+n.ID+"/abort", contract.Reason{Reason: strings.Repeat("é", 513)}).issues("body.reason")
	w.post("/v1/nodes/"+n.ID+"/maintenance", `{"on":false,"reason":"x"}`).issues("body.reason")
}

func TestBadPathsAndQueries(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	for query, paths := range map[string][]string{
		"?limit=0":                      {"query.limit"},
		"?limit=101":                    {"query.limit"},
		"?limit=x":                      {"query.limit"},
		"?limit=-1":                     {"query.limit"},
		"?cursor=x":                     {"query.cursor"},
		"?cursor=MTpwb29sczp4":          {"query.cursor"},
		"?state=sleeping":               {"query.state[0]"},
		"?state=ready&state=up":         {"query.state[1]"},
		"?pool=" + e.site:               {"query.pool"},
		"?pool=x&site=y&tenant=z":       {"query.pool", "query.site", "query.tenant"},
		"?label==b":                     {"query.label[0]"},
		"?maintenance=maybe":            {"query.maintenance"},
		"?color=red":                    {"query.color"},
		"?color=red&limit=0&at=1":       {"query.color", "query.at", "query.limit"},
		"?fields=nodeId,secret":         {"query.fields[1]"},
		"?name=%ff":                     {"query.name"},
		"?name=a%00b":                   {"query.name"},
		"?name=%zz":                     {"query"},
		"?minPosition=-1":               {"query.minPosition"},
		"?minPosition=99999999":         {"query.minPosition"},
		"?minPosition=9999999999999999": {"query.minPosition"},
	} {
		t.Run(query, func(t *testing.T) { w.t = t; w.get("/v1/nodes" + query).issues(paths...) })
	}
	w.t = t
	w.get("/v1/nodes", with("Metal-Position", "99999999")).issues("header.Metal-Position")
	w.get("/v1/nodes/" + e.pool).issues("path.id")
	w.get("/v1/nodes/NODE_01").issues("path.id")
	w.get("/v1/nodes/%ff").issues("path")
	w.get("/v1/nodes/a%00b").issues("path")
	w.post("/v1/nodes/"+n.ID+"/fly", nil).problem(http.StatusNotFound, "NOT_FOUND")
	for _, bad := range []string{`"x"`, "x", `"1`, "-1", "+1", `W/1`, `"1", "2"`, "99999999999999999999"} {
		w.post("/v1/nodes/"+n.ID+"/cordon", nil, with("If-Match", bad)).issues("header.If-Match")
	}
	w.post("/v1/nodes/x/cordon", nil, with("If-Match", "x")).issues("path.id", "header.If-Match")
}

func TestIfMatch(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	path := "/v1/nodes/" + n.ID
	stale := w.post(path+"/cordon", nil, with("If-Match", `"1"`)).problem(http.StatusConflict, "CONFLICT")
	if stale.Details["version"] != float64(n.Version) {
		t.Fatalf("details %v", stale.Details)
	}
	w.post(path+"/cordon", nil, with("If-Match", `"2"`)).want(200)
	w.post(path+"/uncordon", nil, with("If-Match", `3`)).want(200)
	w.post(path+"/cordon", nil, with("If-Match", `W/"4"`)).want(200)
	w.post(path+"/uncordon", nil, with("If-Match", `*`)).want(200)
}

func TestTimeTravel(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	before := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	n := w.enroll(e.pool)
	w.post("/v1/nodes/"+n.ID+"/cordon", nil).want(200)
	path := "/v1/nodes/" + n.ID
	then := w.get(path + "?at=" + decimal(n.Position)).want(200)
	if was := into[contract.Node](then); was.Cordoned || was.Version != n.Version {
		t.Fatalf("%+v", was)
	}
	p := w.get(path+"?at="+before).problem(http.StatusNotFound, "NOT_FOUND")
	if !strings.Contains(p.Detail, "began at") {
		t.Fatalf("%q does not tell when it began", p.Detail)
	}
	w.get(path+"?at=1").problem(http.StatusNotFound, "NOT_FOUND")
	for _, bad := range []string{"yesterday", "0", "-5", "9999999", "2999-01-01T00:00:00Z", "2026-13-01T00:00:00Z"} {
		w.get(path + "?at=" + bad).issues("query.at")
		w.get(path + "/replay?until=" + bad).issues("query.until")
	}
	replay := into[contract.Replay](w.get(path + "/replay").want(200))
	if len(replay.Items) != 3 || replay.Items[2].Event.Type != "node.cordon.set" {
		t.Fatalf("%+v", replay)
	}
	if !bytes.Contains(replay.Items[2].State, []byte(`"cordon"`)) || bytes.Contains(replay.Items[1].State, []byte(`"cordon"`)) {
		t.Fatalf("states %s and %s", replay.Items[1].State, replay.Items[2].State)
	}
}
