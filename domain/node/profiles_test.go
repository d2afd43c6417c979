package node_test

import (
	"testing"

	"github.com/better-compute/metal/domain/node"
)

func TestPartOfLife(t *testing.T) {
	for profile, want := range map[string]bool{
		"metal-enroll": true, "metal-rescue": true, "metal-unrescue": true, "metal-release-oob": true, "metal-unrescue-oob": true,
		"": false, "-oob": false, "image-host": false, "metal-host": false, "my-metal-enroll": false,
	} {
		if got := node.PartOfLife(profile); got != want {
			t.Errorf("%q: %v", profile, got)
		}
	}
}
