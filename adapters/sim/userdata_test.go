package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// install writes an OS with a config drive.
func install(t *testing.T, d disk.Device, config *disk.Config) {
	t.Helper()
	image := OSImage(0, "testos")
	digest := sha256.Sum256(image)
	_, err := disk.WriteImage(t.Context(), d, bytes.NewReader(image), disk.Image{
		Digest: "sha256:" + hex.EncodeToString(digest[:]), Format: "raw", Bytes: int64(len(image)), Config: config,
	}, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUserData(t *testing.T) {
	const content = `{"gateway":"https://gw:1","caSha256":"ab","token":"t"}`
	const encoded = "eyJnYXRld2F5IjoiaHR0cHM6Ly9ndzoxIiwiY2FTaGEyNTYiOiJhYiIsInRva2VuIjoidCJ9"
	want := AgentConfig{Gateway: "https://gw:1", CA: "ab", Token: "t"}
	for _, test := range []struct {
		name, kind, data, meta, hostname string
		code                             fault.Code
	}{
		{"plain", disk.KindNoCloud, "#cloud-config\nwrite_files:\n- {path: /etc/bcd/agent.json, content: '" + content + "'}\n", "m-1", "m-1", ""},
		{"base64", disk.KindNoCloud, "#cloud-config\nwrite_files:\n- {path: /etc/bcd/agent.json, encoding: b64, content: " + encoded + "}\n", "", "", ""},
		{"hostname", disk.KindNoCloud, "#cloud-config\nhostname: h-1\nwrite_files:\n- {path: /etc/bcd/agent.json, content: '" + content + "'}\n", "m-1", "h-1", ""},
		{"a script", disk.KindNoCloud, "#!/bin/sh\n", "", "", fault.InvalidInput},
		{"not YAML", disk.KindNoCloud, "#cloud-config\n\t:", "", "", fault.InvalidInput},
		{"without the file", disk.KindNoCloud, "#cloud-config\nwrite_files: []\n", "", "", fault.NotFound},
		{"an empty file", disk.KindNoCloud, "#cloud-config\nwrite_files:\n- {path: /etc/bcd/agent.json, content: '{}'}\n", "", "", fault.InvalidInput},
		{
			"ignition", disk.KindIgnition,
			`{"storage":{"files":[{"path":"/etc/x"},{"path":"/etc/bcd/agent.json","contents":{"source":"data:;base64,` + encoded + `"}}]}}`, "", "", "",
		},
		{
			"ignition from elsewhere", disk.KindIgnition,
			`{"storage":{"files":[{"path":"/etc/bcd/agent.json","contents":{"source":"https://x/y"}}]}}`, "", "", fault.NotFound,
		},
		{"ignition that is none", disk.KindIgnition, `nope`, "", "", fault.InvalidInput},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := disk.NewMemory(disk.Info{Disk: node.Disk{Bytes: 16 << 20}}, disk.Means{})
			install(t, d, &disk.Config{Kind: test.kind, UserData: []byte(test.data), Hostname: test.meta})
			hostname, got, err := readUserData(d)
			if fault.CodeOf(err) != test.code {
				t.Fatalf("%v", err)
			}
			if err == nil && (got != want || hostname != test.hostname) {
				t.Errorf("%q %+v", hostname, got)
			}
		})
	}
	if _, _, err := readUserData(disk.NewMemory(disk.Info{Disk: node.Disk{Bytes: 16 << 20}}, disk.Means{})); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an empty disk: %v", err)
	}
}
