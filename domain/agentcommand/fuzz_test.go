package agentcommand_test

import (
	"encoding/json"
	"testing"

	"github.com/better-compute/metal/domain/agentcommand"
)

// Whatever a payload holds: it is read or refused, and what is refused is told by path.
func FuzzPayload(f *testing.F) {
	f.Add(`{"method":"quick"}`)
	f.Add(`{"driver":"redfish","concern":"power","operation":"get","bmc":{"address":"https://10.0.0.1","tls":{},"credentialsRef":"secret:1"}}`)
	f.Add(`{"nodeId":"n","macs":["02:00:00:00:00:01"],"tokenRef":"secret:t","kernel":"k","initrd":"i","expiresAt":"2026-11-29T13:00:00Z"}`)
	f.Add(`{"url":"http://a/","digest":"sha256:","format":"raw","bytes":-1,"method":"\u0000","durationSeconds":1e308}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range agentcommand.Kinds {
			payload := k.Payload()
			if json.Unmarshal([]byte(text), payload) != nil {
				continue
			}
			for _, issue := range payload.Check() {
				if issue.Path == "" || issue.Message == "" {
					t.Errorf("%s: an issue without a path or a message", k.Name)
				}
			}
		}
	})
}
