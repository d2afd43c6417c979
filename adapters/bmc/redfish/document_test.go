package redfish

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/bmc"
)

func read(t *testing.T, text string) document {
	t.Helper()
	d, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocument(t *testing.T) {
	d := read(t, "\xef\xbb\xbf"+`{"s":"  padded ","n":"3","big":9007199254740993,"null":null,"t":true,"one":{"a":1},"list":[{"a":1},null,7],
		"wrapped":[{"a":"x"}],"names":["a","",null,2],"name":"a","neg":-4,"frac":256.5,"flag":"false","ctl":"a\u0000b\nc"}`)
	for what, pair := range map[string][2]any{
		"blanks are cut":                {d.text("s"), "padded"},
		"a number as text":              {d.text("n"), "3"},
		"large numbers stay":            {d.text("big"), "9007199254740993"},
		"null is no text":               {d.text("null"), ""},
		"an object is no text":          {d.text("one"), ""},
		"a path that ends early":        {d.text("s", "x", "y"), ""},
		"a list of one is its object":   {d.text("wrapped", "a"), "x"},
		"text is a number":              {d.whole("n"), int64(3)},
		"negative is none":              {d.whole("neg"), int64(0)},
		"fractions are cut":             {d.whole("frac"), int64(256)},
		"one object is a list":          {len(d.objects("one")), 1},
		"what is no object is left out": {len(d.objects("list")), 1},
		"null is present":               {d.has("null"), true},
		"absent is not":                 {d.has("nothing"), false},
		"nor below nothing":             {d.has("nothing", "x"), false},
		"control characters go":         {d.label("ctl"), "abc"},
	} {
		if diff := cmp.Diff(pair[1], pair[0]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if got := d.texts("names"); !cmp.Equal(got, []string{"a", "2"}) || !cmp.Equal(d.texts("name"), []string{"a"}) || d.texts("null") != nil {
		t.Errorf("texts %q", got)
	}
	if value, known := d.flag("flag"); value || !known {
		t.Error("a flag as text is not read")
	}
	if _, known := d.flag("null"); known {
		t.Error("null is false")
	}
	if _, ok := d.number("null"); ok {
		t.Error("null is a number")
	}
	for _, bad := range []string{"", "[]", "7", `"x"`, "{", "<html>"} {
		if d, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is the object %v", bad, d)
		}
	}
}

func TestLocalPath(t *testing.T) {
	for in, want := range map[string]string{
		"/redfish/v1/Systems/1":                  "/redfish/v1/Systems/1",
		"https://other.example:8443/redfish/v1/": "/redfish/v1/",
		"//other.example/redfish/v1":             "/redfish/v1",
		"redfish/v1/Systems":                     "/redfish/v1/Systems",
		"/redfish/v1/X#/Drives/0":                "/redfish/v1/X",
		"/redfish/v1/X?$skip=50":                 "/redfish/v1/X?$skip=50",
		"/a b/Disk.Bay.0:Enclosure":              "/a%20b/Disk.Bay.0:Enclosure",
		"":                                       "",
		"Systems/1":                              "",
		"https://other.example":                  "",
		"/%zz":                                   "",
		"javascript:alert(1)":                    "",
		"https://user:pw@other.example/x":        "/x",
	} {
		if got := localPath(in); got != want {
			t.Errorf("%q became %q; want %q", in, got, want)
		}
	}
}

func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{"Members":[{"@odata.id":"/x"}],"error":{"@Message.ExtendedInfo":{"MessageId":"a"}}}`, `{"a":[[{"a":null}]]}`, `{"TaskState":7}`,
		`{"@odata.etag":"W/\"1\"","Image":"%","MediaTypes":{}}`, `[`, `{"BootSourceOverrideTarget":[]}`,
	} {
		f.Add([]byte(seed))
	}
	c := &conn{d: New(Options{})}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a := &answer{status: 400, header: http.Header{}, body: raw}
		if c.clean(a.etag()) == "W/" {
			t.Error("half a tag")
		}
		for _, m := range a.messages() {
			_ = containsWord(m.text, "Image")
		}
		_ = a.retryAfter(time.Time{})
		_, _ = c.judge(a)
		d := a.doc()
		s := newSlot("/x", d, a)
		_, _, _, _ = s.holds(), s.shows("https://x.example/y"), s.rank(), s.media()
		_ = (&bootView{sys: d, future: d.object("a")}).result()
		_, _ = powerOf(d), wwn(d)
		for _, l := range append(d.links("Members"), d.link("a"), localPath(string(raw))) {
			if l != "" && l[0] != '/' {
				t.Errorf("%q is no local path", l)
			}
		}
	})
}

func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []message
	}{
		"a list": {`{"error":{"code":"G","message":"see","@Message.ExtendedInfo":[{"MessageId":"A","Message":"a","MessageArgs":["x"],"Severity":"Critical"}]}}`,
			[]message{{id: "A", text: "a", args: []string{"x"}, critical: true}, {id: "G", text: "see"}}},
		"one object":    {`{"error":{"@Message.ExtendedInfo":{"MessageId":"A","MessageArgs":"x"}}}`, []message{{id: "A", args: []string{"x"}}, {}}},
		"at the top":    {`{"@Message.ExtendedInfo":[{"MessageId":"A"}]}`, []message{{id: "A"}}},
		"of a property": {`{"Image@Message.ExtendedInfo":[{"MessageId":"A"}]}`, []message{{id: "A", names: []string{"Image"}}}},
		"text in place": {`{"error":"it failed"}`, []message{{text: "it failed"}}},
		"plain text":    {"it failed\n", []message{{text: "it failed"}}},
		"nothing":       {"", nil},
	} {
		got := (&answer{status: 400, body: []byte(c.body)}).messages()
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(message{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		header, body string
		want         time.Duration
	}{
		"seconds":     {"30", "", 30 * time.Second},
		"a date":      {now.Add(time.Minute).Format(http.TimeFormat), "", time.Minute},
		"the past":    {now.Add(-time.Minute).Format(http.TimeFormat), "", 0},
		"absurd":      {"99999999999", "", 24 * time.Hour},
		"a day":       {"100000", "", 24 * time.Hour},
		"a message":   {"", `{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.8.ServiceTemporarilyUnavailable","MessageArgs":["30"]}]}}`, 30 * time.Second},
		"with a unit": {"", `{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.8.ServiceTemporarilyUnavailable","MessageArgs":["30 seconds"]}]}}`, 30 * time.Second},
		"empty":       {"", `{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.8.ServiceTemporarilyUnavailable","MessageArgs":[" "]}]}}`, 0},
		"nothing":     {"", "", 0},
	} {
		a := &answer{header: http.Header{}, body: []byte(c.body)}
		a.header.Set("Retry-After", c.header)
		if got := a.retryAfter(now); got != c.want {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

func TestETag(t *testing.T) {
	for _, c := range []struct{ header, body, want string }{
		{`"a"`, `{"@odata.etag":"\"b\""}`, `"a"`},
		{"", `{"@odata.etag":"\"b\""}`, `"b"`},
		{"", `{"@odata.etag":1718082924}`, `"1718082924"`},
		{"1718082924", "", `"1718082924"`},
		{`W/"a"`, "", `W/"a"`},
		{`"a-gzip"`, "", `"a"`},
		{`W/"a-gzip"`, "", `W/"a"`},
		{`""`, "", ""},
		{`W/""`, "", ""},
		{"", "{}", ""},
	} {
		a := &answer{header: http.Header{}, body: []byte(c.body)}
		a.header.Set("ETag", c.header)
		if got := a.etag(); got != c.want {
			t.Errorf("%s %s: %s; want %s", c.header, c.body, got, c.want)
		}
	}
}

func TestSameImage(t *testing.T) {
	const want = "https://images.example/boot/a.iso?v=2"
	for got, same := range map[string]bool{
		want:                                true,
		"https://images.example/boot/a.iso": true,
		"https://user@IMAGES.example/boot/a.iso?v=2": true,
		"a.iso":                                 true,
		"/boot/a.iso":                           true,
		"images.example/boot/a.iso":             true,
		"":                                      false,
		"https://images.example/boot/b.iso":     false,
		"https://images.example/boot/a.iso?v=1": false,
		"https://other.example/boot/a.iso":      false,
		"//images.example/boot/../../etc/boot/a.iso?x": false,
		"b.iso": false,
	} {
		if sameImage(got, want) != same {
			t.Errorf("%q: %v", got, !same)
		}
	}
}

func TestRecall(t *testing.T) {
	m := recall([]byte(`{"root":"/redfish/v1","system":"https://evil.example/redfish/v1/Systems/1","media":"x","boot":{"uri":"y"},"auth":"basic"}`))
	if m.Root != "/redfish/v1" || m.System != "/redfish/v1/Systems/1" || m.Media != "" || m.Boot != nil || m.Auth != authBasic {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{"", "null", "[]", `{"system":1}`, "{"} {
		if got := recall([]byte(bad)); got.System != "" || got.Root != "" {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}

func TestVendor(t *testing.T) {
	for root, want := range map[string]string{
		`{"Vendor":"Dell Inc."}`:                "Dell",
		`{"Oem":{"Supermicro":{}}}`:             "Supermicro",
		`{"Oem":{"Hpe":{},"@odata.type":"x"}}`:  "HPE",
		`{"Vendor":"AMI","Oem":{"Nvidia":{}}}`:  "AMI",
		`{"Vendor":null,"Oem":{"Acme":{}}}`:     "Acme",
		`{"Oem":{"Acme":{},"Lenovo":{"a":1}}}`:  "Lenovo",
		`{"Vendor":"Hewlett Packard"}`:          "HPE",
		`{"Vendor":"American Megatrends Intl"}`: "AMI",
		`{}`:                                    "",
	} {
		if got := rootVendor(read(t, root)); got != want {
			t.Errorf("%s: %q; want %q", root, got, want)
		}
	}
}

func TestWeak(t *testing.T) {
	for _, c := range []struct {
		id   bmc.Identity
		want []string
	}{
		{bmc.Identity{UUID: "7d3c4e56-0000-4a6b-8c00-0000000000a1", Serial: "SN-1", SKU: "F54P1G3"}, nil},
		{bmc.Identity{UUID: "00000000-0000-0000-0000-7cc25550a8ff"}, []string{"uuid"}},
		{bmc.Identity{UUID: "00000000-0000-0000-0000-000000000000", Serial: "To Be Filled By O.E.M.", SKU: "Default string"}, []string{"uuid", "serial", "sku"}},
		{bmc.Identity{UUID: "ffffffff-ffff-ffff-ffff-ffffffffffff", Serial: "0000000000"}, []string{"uuid", "serial"}},
		{bmc.Identity{UUID: "03000200-0400-0500-0006-000700080009", Serial: "..."}, []string{"uuid", "serial"}},
		{bmc.Identity{}, nil},
	} {
		if diff := cmp.Diff(c.want, weakClaims(c.id)); diff != "" {
			t.Errorf("%+v: %s", c.id, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	c := &conn{d: New(Options{})}
	for body, want := range map[string]struct {
		status int
		over   bool
		failed bool
	}{
		`{"TaskState":"New"}`:                                                        {200, false, false},
		`{"TaskState":"Pondering"}`:                                                  {200, false, false},
		`{"TaskState":"Running"} `:                                                   {202, false, false},
		`{"TaskState":"Completed","TaskStatus":"OK"}`:                                {202, true, false},
		`{"TaskState":"Completed"}`:                                                  {200, true, false},
		`{"TaskState":"Completed","TaskStatus":"Warning"}`:                           {200, true, false},
		`{"TaskState":"Completed","TaskStatus":"Critical"}`:                          {200, true, true},
		`{"TaskState":"Completed","TaskStatus":"OK","Messages":[{"Severity":"OK"}]}`: {200, true, false},
		`{"TaskState":"Completed","Messages":[{"MessageSeverity":"Critical"}]}`:      {200, true, true},
		`{"TaskState":"Exception","TaskStatus":"OK"}`:                                {200, true, true},
		`{"TaskState":"Killed"}`:                                                     {200, true, true},
		`{"TaskState":"Cancelled"}`:                                                  {200, true, true},
		`{"Id":"1"}`:                                                                 {200, true, false},
		``:                                                                           {204, true, false},
		` `:                                                                          {202, false, false},
	} {
		over, err := c.judge(&answer{status: want.status, header: http.Header{}, body: []byte(body)})
		if over != want.over || (err != nil) != want.failed {
			t.Errorf("%s: over %v, %v", body, over, err)
		}
		if err != nil && reasonOf(err) != bmc.TaskFailed {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestMembers(t *testing.T) {
	s := newService(t)
	m := s.open(t)
	const pages = "/redfish/v1/Pages"
	s.docs[pages] = group("/a", "/b", "/A/")
	s.docs[pages]["Members@odata.nextLink"] = pages + "/2"
	s.docs[pages+"/2"] = document{"Members": nil, "Members@odata.count": 7, "Members@odata.nextLink": pages + "/3"}
	s.docs[pages+"/3"] = group("/c")
	s.docs[pages+"/3"]["Members@odata.nextLink"] = "https://other.example" + pages + "/"
	got, err := m.c.members(t.Context(), pages)
	must(t, err)
	if diff := cmp.Diff([]string{"/a", "/b", "/c"}, got); diff != "" {
		t.Error(diff)
	}
}
