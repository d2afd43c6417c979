package ramdisk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/agent/linux"
	"github.com/better-compute/metal/domain/fault"
)

// errPowerButton ends the ramdisk in order.
var errPowerButton = errors.New("the power button was pressed")

// Start is the life of the first process. It does not return: the machine starts anew at its end, or is switched off where
// that was asked for by its power button.
func Start(version, moduleList string) {
	host := &host{moduleList: moduleList}
	err := host.run(version)
	if host.log == nil {
		host.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if !errors.Is(err, errPowerButton) {
		host.log.Error("the machine starts anew", "in", lastWords.String(), "reason", err)
		for _, i := range issuesOf(err) {
			host.log.Error("wrong", "where", i.Path, "what", i.Message)
		}
		if host.pressedWithin(lastWords) {
			err = errPowerButton
		}
	}
	for end := restart; ; time.Sleep(lastWords) {
		if errors.Is(err, errPowerButton) {
			host.log.Info("the machine is switched off")
			end = powerOff
		}
		host.log.Error("the machine does not end", "error", end())
	}
}

// pressedWithin waits, and tells whether the power button was pressed meanwhile.
func (h *host) pressedWithin(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var pressed atomic.Bool
	watchButtons(ctx, os.DirFS("/"), h.log, func() {
		pressed.Store(true)
		cancel()
	})
	return pressed.Load()
}

func issuesOf(err error) []fault.Issue {
	var known *fault.Error
	if errors.As(err, &known) {
		return known.Issues
	}
	return nil
}

// host is the machine that this process is the first of.
type host struct {
	moduleList string
	log        *slog.Logger
}

func (h *host) run(version string) error {
	if err := mountAll(); err != nil {
		return err
	}
	root := os.DirFS("/")
	settings, wrong := ParseSettings(readText(root, "proc/cmdline"))
	h.log = slog.New(slog.NewTextHandler(openConsoles(root), &slog.HandlerOptions{Level: settings.Level}))
	h.log.Info("the ramdisk's agent", "version", version, "kernel", readText(root, "proc/sys/kernel/osrelease"))
	// Should this process die, the machine does not stand still.
	if err := os.WriteFile("/proc/sys/kernel/panic", []byte("30\n"), 0o600); err != nil {
		h.log.Warn("a panic of the kernel will not restart the machine", "error", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { reap(ctx) })
	background.Go(func() { watchButtons(ctx, root, h.log, func() { end(errPowerButton) }) })
	drivers := h.openModules(root)
	h.plug(ctx, drivers, root, &background)
	h.mountVariables(drivers)
	if wrong != nil {
		return wrong
	}
	heard := newNeighbors(settings.LLDPWait)
	ports := newNetwork(root, heard, h.log)
	ports.boot = settings.Port
	background.Go(func() { ports.run(ctx) })

	seen, err := linux.Open(root)
	if err != nil {
		return err
	}
	machine := newMachine(seen, root, drivers, heard, h.log)
	life := Life{Settings: settings, Machine: machine, Version: version, SetClock: h.setClock, Logger: h.log}
	err = life.Run(ctx)
	switch {
	case errors.Is(context.Cause(ctx), errPowerButton):
		err = errPowerButton
	case err == nil:
		err = errors.New("it was told to stop")
	}
	return err
}

// mounts are what a kernel tells of itself by, and where files go for a while.
var mounts = []struct {
	kind, at string
	flags    uintptr
	options  string
}{
	{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"},
	{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
}

func mountAll() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil { //nolint:gosec // as everywhere
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			return &fs.PathError{Op: "mount", Path: m.at, Err: err}
		}
	}
	return nil
}

// mountVariables shows the variables of UEFI firmware, to be read only: the inventory says whether it starts signed programs
// alone.
func (h *host) mountVariables(drivers *modules) {
	const at = "/sys/firmware/efi/efivars"
	if _, err := os.Stat(at); err != nil {
		return // another firmware, or a kernel that does not speak to it
	}
	drivers.load("efivarfs")
	err := unix.Mount("efivarfs", at, "efivarfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	if err != nil && !errors.Is(err, unix.EBUSY) {
		h.log.Warn("the firmware's variables can't be read", "error", err)
	}
}

// openModules reads the list of modules. A driver without its hardware refuses; that is no fault.
func (h *host) openModules(root fs.FS) *modules {
	m := parseModules(readText(root, strings.TrimPrefix(h.moduleList, "/")))
	m.insert = func(file string) error {
		began := time.Now()
		err := loadModule(file)
		h.log.Debug("driver", "file", file, "took", time.Since(began).Round(time.Millisecond).String(), "error", err)
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	}
	m.failed = func(name string, err error) {
		if errors.Is(err, unix.ENODEV) {
			h.log.Debug("not for this machine", "module", name)
			return
		}
		h.log.Warn("a module can't be loaded", "module", name, "error", err)
	}
	return m
}

// Devices appear for a while: drivers look for them in the background, and bring others.
const (
	plugEvery = 100 * time.Millisecond
	plugQuiet = 5 // looks in which nothing new came
	plugLate  = time.Second
	plugUntil = 2 * time.Minute
)

// plug loads drivers until nothing new comes, and goes on in the background for what is slow.
func (h *host) plug(ctx context.Context, m *modules, root fs.FS, background *sync.WaitGroup) {
	began := time.Now()
	for quiet := 0; quiet < plugQuiet; quiet++ {
		if m.plug(root) {
			quiet = 0
		}
		pause(ctx, plugEvery)
	}
	h.log.Info("drivers", "loaded", m.count(), "took", time.Since(began).Round(time.Millisecond).String())
	background.Go(func() {
		for time.Since(began) < plugUntil && pause(ctx, plugLate) {
			m.plug(root)
		}
	})
}

func loadModule(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was read
	return unix.FinitModule(int(file.Fd()), "", 0)
}

// reap takes the dead whose parents are gone: nobody else does.
func reap(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	for {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-died:
		}
	}
}

// setClock sets the time, also in the machine's own clock: what starts next goes by that.
func (h *host) setClock(t time.Time) {
	if err := unix.Settimeofday(&unix.Timeval{Sec: t.Unix()}); err != nil {
		h.log.Warn("the clock can't be set", "error", err)
	}
	if err := setHardwareClock(t.UTC()); err != nil {
		h.log.Warn("the machine's own clock can't be set", "error", err)
	}
}

func setHardwareClock(t time.Time) error {
	clock, err := os.Open("/dev/rtc0")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has none
	}
	if err != nil {
		return err
	}
	defer clock.Close() //nolint:errcheck // nothing was written to it
	const firstYear = 1900
	return unix.IoctlSetRTCTime(int(clock.Fd()), &unix.RTCTime{
		Sec: int32(t.Second()), Min: int32(t.Minute()), Hour: int32(t.Hour()),
		Mday: int32(t.Day()), Mon: int32(t.Month()) - 1, Year: int32(t.Year() - firstYear),
	})
}

// restart starts the machine anew.
func restart() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// powerOff switches the machine off.
func powerOff() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// consoles are all that the kernel prints to: a screen and a serial line may both have someone before them.
type consoles []io.Writer

// Write writes to each, and does not mind where one is broken.
func (c consoles) Write(b []byte) (int, error) {
	for _, w := range c {
		_, _ = w.Write(b)
	}
	return len(b), nil
}

func openConsoles(root fs.FS) io.Writer {
	var out consoles
	for _, name := range strings.Fields(readText(root, "sys/class/tty/console/active")) {
		if file, err := os.OpenFile("/dev/"+name, os.O_WRONLY|unix.O_NOCTTY, 0); err == nil {
			out = append(out, file)
		}
	}
	if len(out) == 0 {
		return os.Stderr
	}
	return out
}
