// Command labmachine runs one machine in QEMU behind a Redfish controller, and serves an OS for it: what metalsim does for
// simulated machines. It is for make demo-machine, and for trying things out by hand.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/test/machine/assets"
	"github.com/better-compute/metal/test/machine/osimage"
	"github.com/better-compute/metal/test/machine/qemu"
)

// seenByMachine is this computer in the network that QEMU makes of a user's own connections: it needs no rights.
const seenByMachine = "10.0.2.2"

const (
	imageName = "labos.raw"
	imageMiB  = 40
	diskBytes = 64 << 20
)

// options are the flags.
type options struct{ repository, dir, bootURL string }

func main() {
	var o options
	flag.StringVar(&o.repository, "repository", ".", "root of the repository, where make lab-assets put QEMU")
	flag.StringVar(&o.dir, "dir", "", "folder for the machine's disk, its console and the image of the OS")
	flag.StringVar(&o.bootURL, "boot-url", "", "the site agent's boot server, as the machine reaches it: http://"+seenByMachine+":PORT")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "labmachine:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to stop
	}
}

// run prints what it takes to enroll the machine, and keeps the machine until ctx ends.
func run(ctx context.Context, out io.Writer, o options) error {
	a, err := assets.Open(o.repository)
	if err != nil {
		return err
	}
	images, err := serveImage(ctx, a, o)
	if err != nil {
		return err
	}
	defer images.Close()
	var service *bmcsim.Service
	controller := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { service.ServeHTTP(w, r) }))
	spec := qemu.Spec{
		Name: "machine-1", Serial: "LAB-1", UUID: "6f1c0000-0000-4000-8000-000000000001", MAC: "52:54:00:6c:00:01",
		Username: "operator", Password: rand.Text(), Host: controller.Listener.Addr().String(), MemoryMiB: 512,
		Disks: []qemu.Disk{{Serial: "DISK-1", Bytes: diskBytes}},
	}
	spec.Network = "user,bootfile=" + netboot.ScriptURL(o.bootURL, spec.MAC)
	m, err := qemu.New(a, o.dir, spec)
	if err != nil {
		return err
	}
	defer m.Close()
	if service, err = bmcsim.New(m, bmcsim.Options{Personality: bmcsim.Standard}); err != nil {
		return err
	}
	controller.StartTLS()
	defer controller.Close()
	imageAt, err := url.Parse(images.URL)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "machine   %s  %s  %s  %s  %s\ndisk      %s\nconsole   %s\nimage     %s  http://%s:%s/%s\nCtrl-C ends it.\n",
		spec.Name, controller.URL, spec.Username, spec.Password, spec.MAC, m.DiskFile(0), m.ConsoleFile(),
		filepath.Join(o.dir, imageName), seenByMachine, imageAt.Port(), imageName)
	<-ctx.Done()
	return nil
}

// serveImage makes the OS and serves it.
func serveImage(ctx context.Context, a assets.Assets, o options) (*httptest.Server, error) {
	image, err := osimage.OS(ctx, o.repository, a, imageMiB, "console=ttyS0 panic=-1 no_timer_check quiet")
	if err != nil {
		return nil, err
	}
	name := filepath.Join(o.dir, imageName)
	if err := os.WriteFile(name, image, 0o600); err != nil {
		return nil, err
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) })), nil
}
