package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// Whatever a body holds: it is taken whole or refused with INVALID_INPUT, what is taken is one strict JSON value in UTF-8,
// and its canonical form means the same and is its own canonical form.
func FuzzTakeBody(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", `{"a":1,"a":2}`, `{"a":{"b":[1,{"c":"\ud800"}]}}`, "\xff", "{} {}", strings.Repeat("[", 20_000),
		`{"poolId":"pool_01k","bmc":{"credentials":{"password":"é"}}}`, "\ufeff{}", `{"n":1e400}`, `"\u0000"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := httptest.NewRequest(http.MethodPost, "/v1/nodes", bytes.NewReader(in))
		body, canonical, err := takeBody(httptest.NewRecorder(), r)
		if err != nil {
			if problemOf(t.Context(), err).Code != string(fault.InvalidInput) {
				t.Fatalf("%v", err)
			}
			return
		}
		if !bytes.Equal(body, in) || !utf8.Valid(body) {
			t.Fatal("the body is not what was sent, or not UTF-8")
		}
		if len(in) == 0 {
			return
		}
		var given, same any
		if json.Unmarshal(body, &given) == nil {
			if err := json.Unmarshal(canonical, &same); err != nil {
				t.Fatalf("%q became %q: %v", body, canonical, err)
			}
		}
		again, err := canonicalJSON(canonical)
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("%q became %q: %v", canonical, again, err)
		}
		var enrollment contract.Enrollment
		_ = formed(body, &enrollment) // must not panic
	})
}

func FuzzIfMatch(f *testing.F) {
	for _, seed := range []string{`"17"`, "17", `W/"17"`, "*", `"`, `""`, "W/", "-1", "+1", "1 2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ifMatch(text)
		if err != nil && fault.CodeOf(err) != fault.InvalidInput || err == nil && v == nil && strings.TrimSpace(text) != "*" {
			t.Fatalf("%q: %v %v", text, v, err)
		}
	})
}
