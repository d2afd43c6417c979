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

// osImages are the OS that is deployed, made once for each kernel.
var osImages struct {
	sync.Mutex
	of map[string][]byte
}

// OSImage makes the image of the OS that is deployed.
func OSImage(t testing.TB, a assets.Assets) []byte {
	t.Helper()
	osImages.Lock()
	defer osImages.Unlock()
	if image, made := osImages.of[a.Kernel]; made {
		return image
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	image, err := osimage.OS(t.Context(), root, a, imageMiB, kernelArguments)
	if err != nil {
		t.Fatal(err)
	}
	if osImages.of == nil {
		osImages.of = map[string][]byte{}
	}
	osImages.of[a.Kernel] = image
	return image
}
