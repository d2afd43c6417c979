package machine

import (
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/metal/test/machine/assets"
	"github.com/better-compute/metal/test/machine/osimage"
)

// imageMiB is the size of the OS's image: the least that its kind of filesystem can have, and some room.
const imageMiB = 40

// repository is the root of this repository.
var repository = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
})

// openAssets finds what the lab runs on. A test without it fails.
func openAssets(t testing.TB) assets.Assets {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	a, err := assets.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// osImage is the OS that is deployed, made once.
var osImage struct {
	sync.Mutex
	bytes []byte
}

// OSImage makes the image of the OS that is deployed.
func OSImage(t testing.TB) []byte {
	t.Helper()
	osImage.Lock()
	defer osImage.Unlock()
	if osImage.bytes == nil {
		root, err := repository()
		if err == nil {
			osImage.bytes, err = osimage.OS(t.Context(), root, openAssets(t), imageMiB, kernelArguments)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return osImage.bytes
}
