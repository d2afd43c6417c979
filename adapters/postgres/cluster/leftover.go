package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// How long a start waits for the lock: a holder that was killed may take a moment to be seen dead, and longer until the
// kernel has given its lock back.
const (
	livingPatience = 2 * time.Second
	deadPatience   = 10 * time.Second
)

// lockFile takes the lock of a data directory for this process. The kernel gives it back when the process ends,
// however it ends.
func lockFile(ctx context.Context, dataDir string) (*os.File, error) {
	path := dataDir + ".lock"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.New(fault.InvalidConfig, "the lock of the data directory cannot be opened: %v", err).
			WithRemedy("run as the owner of the file, or use another data directory")
	}
	if err := takeLock(ctx, file); err != nil {
		_ = file.Close()
		return nil, fault.New(fault.InvalidConfig, "process %d runs PostgreSQL on %s already", holderOf(path), dataDir).
			WithRemedy("stop it, or use another data directory")
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		_ = file.Close()
		return nil, fault.New(fault.InvalidConfig, "the lock of the data directory cannot be written: %v", err)
	}
	return file, nil
}

// takeLock waits for a holder that is going away, not for one that stays.
func takeLock(ctx context.Context, file *os.File) error {
	for began := time.Now(); ; pause(ctx) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || ctx.Err() != nil {
			return err
		}
		patience := deadPatience
		if alive(ctx, holderOf(file.Name())) {
			patience = livingPatience
		}
		if time.Since(began) > patience {
			return err
		}
	}
}

// holderOf is the process that wrote the lock file; 0: it is not known.
func holderOf(path string) int {
	text, _ := os.ReadFile(path) // only to name it
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// endLeftover shuts down a server that an earlier process left on the data directory, and removes the files by which it
// is known where the number now belongs to another program: a new server would stumble over them. We hold the lock, so
// they are nobody else's.
func (c *Cluster) endLeftover(ctx context.Context) error {
	if err := c.endServer(ctx); err != nil {
		return err
	}
	// Whoever held the socket is gone, but its number may be another program's now, or still a zombie's.
	if err := os.Remove(c.options.SocketDir + socketName + ".lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.InvalidConfig, "a stale lock of the socket cannot be removed: %v", err)
	}
	return nil
}

// endServer shuts down the server that the pid file names, if there is one.
func (c *Cluster) endServer(ctx context.Context) error {
	text, err := os.ReadFile(c.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the data directory cannot be read: %v", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 0 || !isServer(ctx, pid, c.options.DataDir) {
		if err := os.Remove(c.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(err, fault.InvalidConfig, "a stale pid file cannot be removed: %v", err)
		}
		return nil
	}
	for _, how := range []syscall.Signal{fast, immediate} {
		if err := syscall.Kill(pid, how); err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if gone(ctx, pid, stopPatience) {
			return nil
		}
	}
	return fault.New(fault.Unavailable, "PostgreSQL of an earlier start, process %d, does not end", pid)
}

// isServer tells whether a process is a server on the data directory, by its command line.
func isServer(ctx context.Context, pid int, dataDir string) bool {
	output, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false // ps fails where there is no such process
	}
	program, _, _ := strings.Cut(strings.TrimSpace(string(output)), " ")
	return filepath.Base(program) == "postgres" && strings.Contains(string(output), dataDir)
}

// alive tells whether a process runs. One that was killed and that nobody has waited for (a zombie) does not.
func alive(ctx context.Context, pid int) bool {
	if pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	state, err := exec.CommandContext(ctx, "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func gone(ctx context.Context, pid int, patience time.Duration) bool {
	for deadline := time.Now().Add(patience); alive(ctx, pid); pause(ctx) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// pause is the time between two looks at another process.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}
