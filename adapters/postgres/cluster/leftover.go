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

// lockFile takes the lock of a data directory for this process. The kernel gives it back when the process ends,
// however it ends.
func lockFile(dataDir string) (*os.File, error) {
	path := dataDir + ".lock"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the lock of the data directory cannot be made: %v", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path) // only to name it
		_ = file.Close()
		return nil, fault.Wrap(err, fault.InvalidConfig, "process %s runs PostgreSQL on %s already",
			strings.TrimSpace(string(holder)), dataDir).WithRemedy("stop it, or use another data directory")
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		_ = file.Close()
		return nil, fault.Wrap(err, fault.InvalidConfig, "the lock of the data directory cannot be written: %v", err)
	}
	return file, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// endLeftover shuts down a server that an earlier process left on the data directory, or removes the pid file where
// the number now belongs to another program, over which the server would stumble. We hold the lock, so it is nobody
// else's.
func (c *Cluster) endLeftover(ctx context.Context) error {
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

func gone(ctx context.Context, pid int, patience time.Duration) bool {
	deadline := time.After(patience)
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-ctx.Done():
			return false
		case <-deadline:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}
