// Command osinit is all of a small OS but its kernel: the first process. It does what a distribution's OS does with user
// data, as far as the agent needs it, and runs the agent of an installed OS.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agent/linux"
	"github.com/better-compute/metal/adapters/bootimage"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "osinit is the first process of a machine, and of use to nobody else")
		os.Exit(2)
	}
	fmt.Println("labos: starting")
	err := run()
	fmt.Println("labos: the end:", err)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // there is nobody to tell
}

func run() error {
	for _, m := range []struct{ what, where string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.what, m.where, m.what, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	go listenToTheButton()
	ctx := context.Background()
	root, own, err := findDisks(ctx)
	if err != nil {
		return err
	}
	state, err := openState(own)
	if err != nil {
		return err
	}
	config, err := sim.ReadAgentConfig(root)
	if err != nil {
		return err
	}
	if err := network(ctx); err != nil {
		return err
	}
	machine, err := linux.Open(os.DirFS("/"))
	if err != nil {
		return err
	}
	m := host{machine}
	fmt.Println("labos: the agent starts, boot", m.BootID())
	return agent.Run(ctx, agent.Options{
		Gateway: config.Gateway, CA: config.CA, Token: config.Token, Role: agentcommand.RoleNode, State: state, Machine: m,
		Version: "labos", Name: "labos", Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)), Room: 1,
		Kinds: agent.MachineHandlers(agent.MachineDeps{Machine: m, Role: agentcommand.RoleNode}),
	})
}

// host is the machine, with what an OS without systemd does at its end.
type host struct{ *linux.Machine }

// Reboot restarts the machine.
func (host) Reboot(context.Context) error { return end(unix.LINUX_REBOOT_CMD_RESTART) }

// PowerOff switches it off.
func (host) PowerOff(context.Context) error { return end(unix.LINUX_REBOOT_CMD_POWER_OFF) }

func end(how int) error {
	unix.Sync()
	return unix.Reboot(how)
}

// loadModules loads everything that the initramfs lists: what others need stands before them.
func loadModules() error {
	list, err := os.ReadFile("/" + bootimage.ModuleList)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		name := "/" + strings.TrimPrefix(words[1], "/")
		if err := load(name); err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func load(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was read
	return unix.FinitModule(int(file.Fd()), "", 0)
}

// deviceWithin is how long disks and ports may take to appear.
const deviceWithin = 30 * time.Second

// await tries until it succeeds, or the time is up.
func await(what string, try func() error) error {
	deadline := time.Now().Add(deviceWithin)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited for %s: %w", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// listenToTheButton switches the machine off in order when its power button is pressed.
func listenToTheButton() {
	const keyEvent, powerKey, eventBytes = 1, 116, 24
	names, _ := filepath.Glob("/dev/input/event*") // a machine without a button has none
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		go func() {
			defer file.Close() //nolint:errcheck // it was read
			e := make([]byte, eventBytes)
			for {
				if n, err := file.Read(e); err != nil || n < eventBytes {
					return
				}
				if e[16] == keyEvent && e[18] == powerKey && e[20] == 1 {
					fmt.Println("labos: the power button")
					_ = end(unix.LINUX_REBOOT_CMD_POWER_OFF) // there is nobody to tell
				}
			}
		}()
	}
}

var errNoDisk = fault.New(fault.NotFound, "no disk has the partition of this OS")
