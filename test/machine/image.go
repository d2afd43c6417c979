package machine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/metal/adapters/bootimage"
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
		osImage.bytes = buildImage(t)
	}
	return osImage.bytes
}

func buildImage(t testing.TB) []byte {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := openAssets(t)
	program := filepath.Join(t.TempDir(), "osinit")
	root, err := repository()
	must(err)
	c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", program, "./test/machine/osinit")
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the OS: %v: %s", err, out)
	}
	first, err := os.ReadFile(program)
	must(err)
	var initrd bytes.Buffer
	built, err := bootimage.Ramdisk{
		Agent: first, Modules: os.DirFS(a.Modules), Compress: true,
		Names: []string{"virtio_pci", "virtio_rng", "virtio_net", "virtio_blk", "nvme", "button", "evdev"},
	}.Initramfs(&initrd)
	must(err)
	t.Logf("the OS: kernel %s, initramfs of %d KiB, modules %s", built.Release, initrd.Len()>>10, strings.Join(built.Modules, " "))
	kernel, err := os.ReadFile(a.Kernel)
	must(err)
	stub, err := os.ReadFile(a.Stub)
	must(err)
	uki, err := osimage.UKI(stub, kernel, initrd.Bytes(), "console=ttyS0 panic=-1")
	must(err)
	image, err := osimage.Build(uki, imageMiB)
	must(err)
	return image
}
