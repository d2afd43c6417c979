package agentapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/fault"
)

// Whatever an agent sends is read or refused, and nothing of it is repeated: it may hold a token.
func FuzzBody(f *testing.F) {
	f.Add(`{"token":"jtk_x.y","role":"ramdisk","claims":{"macs":["02:00:00:00:00:01"]},"csr":"AAAA"}`)
	f.Add(`{"bootId":"b","waitSeconds":1e400,"room":-1,"doing":["cmd_01h455vb4pex5vsknk084sn02q"]}`)
	f.Add(`{"bootId":"b","id":"x","percent":"NaN","attestation":{"at":"never"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, into := range []any{
			&protocol.JoinRequest{}, &protocol.SessionRequest{}, &protocol.PollRequest{}, &protocol.AckRequest{},
			&protocol.ProgressRequest{}, &protocol.ResultRequest{}, &protocol.SecretRequest{}, &protocol.RenewRequest{}, &protocol.CloseRequest{},
		} {
			status, err := read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), smallBody, into)
			if err != nil && (fault.CodeOf(err) != fault.InvalidInput || status < 400) {
				t.Errorf("%d, %v", status, err)
			}
			if err != nil && len(body) > 12 && strings.Contains(err.Error(), body) {
				t.Errorf("the body is repeated: %v", err)
			}
		}
	})
}

// What goes into PostgreSQL is what it takes.
func FuzzTexts(f *testing.F) {
	f.Add("cmd_01h455vb4pex5vsknk084sn02q", 1.5)
	f.Add("{a,\"b\"}\x00\xff", -1e300)
	f.Fuzz(func(t *testing.T, text string, wait float64) {
		if got := clean(text, 16); len(got) > 16 || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%q became %q", text, got)
		}
		for _, kept := range commandIDs([]string{text}) {
			if strings.ContainsAny(kept, `{},"\ `) {
				t.Errorf("%q passes for an id", kept)
			}
		}
		if d := seconds(wait); d < 0 || d.Hours() > 1 {
			t.Errorf("%v became %s", wait, d)
		}
	})
}
