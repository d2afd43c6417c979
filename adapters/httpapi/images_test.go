package httpapi

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// signer is a key whose public half is in tenants' policies.
var signer = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func (w *world) trust(tenant string) {
	w.t.Helper()
	der := must(x509.MarshalPKIXPublicKey(signer.Public()))(w.t)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	w.send("PUT", "/v1/tenants/"+tenant+"/policy", contract.ChangeTenantPolicy{Policy: contract.TenantPolicy{
		ImageSigners: []contract.ImageSigner{{Name: "release", PublicKey: key}},
	}}).want(200)
}

// ubuntu is a valid registration of a version.
func ubuntu(tenant, version string) contract.NewImage {
	sum := sha256.Sum256([]byte(version))
	return contract.NewImage{
		Tenant: tenant, Name: "ubuntu", Version: version, Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: 7, Format: "raw.zst",
		URL: "https://images.example/u.raw.zst", Signature: ed25519.Sign(signer, sum[:]),
	}
}

func TestImageIsRegisteredAndWithdrawn(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	w.post("/v1/images", ubuntu(e.tenant, "1"), as(e.token)).issues("body.signature")
	w.trust(e.tenant)
	made := w.post("/v1/images", ubuntu(e.tenant, "1"), as(e.token)).want(201)
	i := into[contract.Image](made)
	if i.Signer != "release" || i.Withdrawn || i.Public || i.ImageVersion != "1" || i.Version != 1 {
		t.Fatalf("%+v", i)
	}
	if read := w.get(made.header.Get("Location"), as(e.token)).want(200); !bytes.Equal(read.body, made.body) {
		t.Fatalf("made %s, read %s", made.body, read.body)
	}
	if again := into[contract.Image](w.post("/v1/images", ubuntu(e.tenant, "1"), as(e.token)).want(201)); again != i {
		t.Fatalf("the same again: %+v", again)
	}
	other := ubuntu(e.tenant, "1")
	other.URL += "?mirror"
	w.post("/v1/images", other, as(e.token)).problem(409, "CONFLICT")
	path := "/v1/images/" + i.ID
	w.post(path+"/withdraw", nil, as(e.token), with("If-Match", `"2"`)).problem(409, "CONFLICT")
	gone := w.post(path+"/withdraw", contract.Reason{Reason: "a hole"}, as(e.token), with("If-Match", `"1"`), with("Idempotency-Key", "k")).want(200)
	if g := into[contract.Image](gone); !g.Withdrawn || g.Reason != "a hole" || !g.RegisteredAt.Equal(i.RegisteredAt) {
		t.Fatalf("%+v", g)
	}
	again := w.post(path+"/withdraw", contract.Reason{Reason: "a hole"}, as(e.token), with("If-Match", `"1"`), with("Idempotency-Key", "k")).want(200)
	if !bytes.Equal(again.body, gone.body) {
		t.Fatalf("%s", again.body)
	}
	if read := w.get(path+"?minPosition="+gone.header.Get(contract.HeaderPosition), as(e.token)).want(200); !bytes.Equal(read.body, gone.body) {
		t.Fatalf("withdrawn %s, read %s", gone.body, read.body)
	}
	w.post("/v1/images", ubuntu(e.tenant, "1"), as(e.token)).problem(409, "CONFLICT")
	if list := into[contract.List[contract.Image]](w.get("/v1/images", as(e.token)).want(200)); len(list.Items) > 0 {
		t.Fatalf("a withdrawn image is listed: %+v", list)
	}
	if list := into[contract.List[contract.Image]](w.get("/v1/images?withdrawn=true", as(e.token)).want(200)); len(list.Items) != 1 {
		t.Fatalf("%+v", list)
	}
}

func TestBadImages(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	bad := contract.NewImage{
		Tenant: e.tenant, Name: "a b", Version: "", Digest: "md5:00", Bytes: -1, Format: "iso", URL: "https://u:p@images/x", Signature: []byte{1},
	}
	w.post("/v1/images", bad).issues("body.name", "body.version", "body.digest", "body.bytes", "body.format", "body.url")
	w.post("/v1/images", `{}`).issues("body.tenantId", "body.name", "body.version", "body.digest", "body.bytes", "body.format", "body.url", "body.signature")
	var whole map[string]any
	if err := json.Unmarshal(must(json.Marshal(ubuntu("x", "1")))(t), &whole); err != nil {
		t.Fatal(err)
	}
	w.post("/v1/images", whole).issues("body.tenantId")
	whole["tenantId"], whole["signature"] = e.tenant, "not base64!"
	w.post("/v1/images", whole).issues("body.signature")
	w.get("/v1/images/x").issues("path.id")
	w.post("/v1/images/x/withdraw", nil, with("If-Match", "x")).issues("path.id", "header.If-Match")
	w.get("/v1/images?withdrawn=perhaps&tenant=x&limit=101").issues("query.withdrawn", "query.limit")
	w.get("/v1/images?tenant=x").issues("query.tenant")
	w.get("/v1/images?cursor=x").issues("query.cursor")
	w.trust(e.tenant)
	i := into[contract.Image](w.post("/v1/images", ubuntu(e.tenant, "1")).want(201))
	w.post("/v1/images/"+i.ID+"/withdraw", contract.Reason{Reason: string(bytes.Repeat([]byte("x"), 513))}).issues("body.reason")
}

func TestWhoSeesWhichImage(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	w.trust(mine.tenant)
	w.trust(theirs.tenant)
	own := into[contract.Image](w.post("/v1/images", ubuntu(mine.tenant, "1"), as(mine.token)).want(201))
	hidden := into[contract.Image](w.post("/v1/images", ubuntu(theirs.tenant, "1"), as(theirs.token)).want(201))
	open := ubuntu(theirs.tenant, "2")
	open.Public = true
	w.post("/v1/images", open, as(theirs.token)).problem(403, "FORBIDDEN")
	shared := into[contract.Image](w.post("/v1/images", open).want(201))
	w.get("/v1/images/"+own.ID, as(mine.token)).want(200)
	w.get("/v1/images/"+shared.ID, as(mine.token)).want(200)
	w.get("/v1/images/"+hidden.ID, as(mine.token)).problem(404, "NOT_FOUND")
	w.post("/v1/images/"+hidden.ID+"/withdraw", nil, as(mine.token)).problem(404, "NOT_FOUND")
	w.post("/v1/images/"+shared.ID+"/withdraw", nil, as(mine.token)).problem(404, "NOT_FOUND")
	w.post("/v1/images", ubuntu(theirs.tenant, "3"), as(mine.token)).problem(404, "NOT_FOUND")
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		page := into[contract.List[contract.Image]](w.get("/v1/images?name=ubuntu&limit=1&cursor="+url.QueryEscape(cursor), as(mine.token)).want(200))
		for _, i := range page.Items {
			got = append(got, i.ID)
		}
		cursor = page.Next
	}
	if fmt.Sprint(got) != fmt.Sprint([]string{shared.ID, own.ID}) {
		t.Fatalf("%v", got)
	}
	_, blind := w.caller(mine.tenant, "tenant", mine.tenant, "compute:nodes:read")
	w.get("/v1/images/"+own.ID, as(blind)).problem(404, "NOT_FOUND")
	w.get("/v1/images/"+shared.ID, as(blind)).problem(404, "NOT_FOUND")
	_, reader := w.caller(mine.tenant, "tenant", mine.tenant, "compute:images:read", "compute:tenants:read")
	w.post("/v1/images/"+own.ID+"/withdraw", nil, as(reader)).problem(403, "FORBIDDEN")
}
