package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// HostPort is what the network port of a Host is called there.
const HostPort = "net0"

// Host is another computer on the bridge: a namespace of its own with one port.
type Host struct{ namespace *os.File }

// NewHost plugs one in that has an address. Name is the bridge's port. It needs iproute2.
func NewHost(name, address string) (*Host, error) {
	h := &Host{}
	err := aside(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("another network namespace: %w", err)
		}
		h.namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	there := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.namespace.Fd())
	for _, line := range []string{
		"link add " + name + " type veth peer name " + HostPort + " netns " + there, "link set " + name + " master " + Bridge + " up",
	} {
		if err := ip(line); err != nil {
			return nil, err
		}
	}
	return h, h.Within(func() error {
		for _, line := range []string{"link set lo up", "link set " + HostPort + " up", "address add " + address + "/24 dev " + HostPort} {
			if err := ip(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// Within calls a function on that computer: the sockets that it opens, and the processes that it starts, are there.
func (h *Host) Within(call func() error) error {
	return aside(func() error {
		if err := unix.Setns(int(h.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return call()
	})
}

// aside calls a function that may leave this network on a thread that comes back to it. The thread lives on: processes that it
// started end with it.
func aside(call func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close() //nolint:errcheck // it was not written to
		err = call()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			done <- fmt.Errorf("come back to the network of the lab: %w", back)
			return // and the thread ends
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

func ip(line string) error {
	c := exec.Command("ip", strings.Fields(line)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s (of iproute2): %w: %s", line, err, out)
	}
	return nil
}
