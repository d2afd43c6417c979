// Package netns gives tests a network of their own: a namespace with a bridge that machines are plugged into. Nothing of it
// can be seen outside, and it is gone with the process.
package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Address is the computer's in the network of its machines.
const Address = "10.77.0.1"

// Prefix is that network.
const Prefix = "10.77.0.0/24"

// Bridge is the device that machines are plugged into.
const Bridge = "lab0"

const (
	inside = "METAL_LAB_NETWORK"
	none   = "none"
)

// Main runs what tests a package in a network of its own: the test program starts itself there. As another user than root it
// is a namespace of users too, where the system permits one. METAL_LAB_NETWORK=none leaves all of that out, for tests whose
// machines have QEMU's own network.
func Main(run func()) {
	switch os.Getenv(inside) {
	case none:
		run()
		return
	case "":
		os.Exit(again())
	}
	if err := up(); err != nil {
		fmt.Fprintln(os.Stderr, "the network of the lab:", err)
		os.Exit(1)
	}
	run()
}

// again runs this program in new namespaces and gives its exit code.
func again() int {
	runtime.LockOSThread() // the program ends with this thread
	defer runtime.UnlockOSThread()
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), inside+"=yes")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if user := os.Getuid(); user != 0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: user, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN}
	}
	if err := c.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the network of the lab:", err)
		return 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = c.Process.Signal(s) // it may have ended
		}
	}()
	err := c.Wait()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		fmt.Fprintln(os.Stderr, "the network of the lab:", err)
		return 1
	}
	if code := c.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 1 // a signal ended it
}

// up makes the network: this program's address is the bridge's.
func up() error {
	return control(func(fd int) error {
		if err := raise(fd, "lo"); err != nil {
			return err
		}
		bridge, err := unix.NewIfreq(Bridge)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCBRADDBR, bridge); err != nil {
			return fmt.Errorf("make a bridge: %w", err)
		}
		if err := setAddress(fd, unix.SIOCSIFADDR, Address); err != nil {
			return err
		}
		if err := setAddress(fd, unix.SIOCSIFNETMASK, "255.255.255.0"); err != nil {
			return err
		}
		return raise(fd, Bridge)
	})
}

// Tap is a cable into the bridge: whoever has the file has a network card on the other end.
func Tap(name string) (*os.File, error) {
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	err = control(func(fd int) error {
		tap, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		tap.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(int(file.Fd()), unix.TUNSETIFF, tap); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		index, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, index); err != nil {
			return err
		}
		port, err := unix.NewIfreq(Bridge)
		if err != nil {
			return err
		}
		port.SetUint32(index.Uint32())
		if err := unix.IoctlIfreq(fd, unix.SIOCBRADDIF, port); err != nil {
			return fmt.Errorf("plug %s into %s: %w", name, Bridge, err)
		}
		return raise(fd, name)
	})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func control(do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(fd), unix.Close(fd))
}

// raise switches a device on.
func raise(fd int, name string) error {
	device, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, device); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	device.SetUint16(device.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, device); err != nil {
		return fmt.Errorf("switch %s on: %w", name, err)
	}
	return nil
}

func setAddress(fd int, what uint, address string) error {
	device, err := unix.NewIfreq(Bridge)
	if err != nil {
		return err
	}
	if err := device.SetInet4Addr(netip.MustParseAddr(address).AsSlice()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, what, device); err != nil {
		return fmt.Errorf("%s gets %s: %w", Bridge, address, err)
	}
	return nil
}
