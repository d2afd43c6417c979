package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/metal/cmd/program"
)

// publicDirectory is one that the database's own account reaches, which t.TempDir's is not.
func publicDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "metald-dev-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDevTakenPortMakesNothing(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	dir := filepath.Join(publicDirectory(t), "data")
	for option, other := range map[string]string{"--listen": "--gateway-listen", "--gateway-listen": "--listen"} {
		code, _, stderr := runs(t, "dev", "--data-dir", dir, option, taken.Addr().String(), other, "127.0.0.1:0")
		if code != program.ExitBadConfig {
			t.Errorf("exit code %d", code)
		}
		wantWords(t, stderr, "can't listen on "+taken.Addr().String(), "in use", "choose another "+option)
		if _, err := os.Stat(dir); err == nil {
			t.Error("a data directory was made all the same")
		}
	}
}

func TestDevWithoutItsKey(t *testing.T) {
	dir := publicDirectory(t)
	if err := os.Mkdir(filepath.Join(dir, "postgres"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := runs(t, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0")
	key := filepath.Join(dir, "master-key")
	if code != program.ExitBadConfig {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, stderr, "INVALID_CONFIG", key+" is missing", "restore the key")
	if _, err := os.Stat(key); err == nil {
		t.Error("a new key was written")
	}
}

// A control plane whose database is killed ends and says why; the next start finds what there was.
func TestDevEndsWithItsDatabase(t *testing.T) {
	dir := publicDirectory(t)
	args := []string{"dev", "--data-dir", dir, "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0", "--drain", "1s"}
	type result struct {
		code   int
		stderr string
	}
	ended := make(chan result, 1)
	go func() {
		code, _, stderr := runs(t, args...)
		ended <- result{code, stderr}
	}()
	pid := postmaster(t, dir)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-ended:
		if r.code != program.ExitFailed {
			t.Errorf("exit code %d", r.code)
		}
		wantWords(t, r.stderr, "the private PostgreSQL ended by itself", "UNAVAILABLE", "postgres.log")
	case <-time.After(3 * time.Minute):
		t.Fatal("it stays up without its database")
	}
	ctx, stop := context.WithCancel(t.Context())
	var code int
	done := make(chan struct{})
	go func() {
		defer close(done)
		code = execute(ctx, &strings.Builder{}, &strings.Builder{}, args...)
	}()
	postmaster(t, dir)
	stop()
	<-done
	if code != 0 {
		t.Errorf("a start that is stopped again: exit code %d", code)
	}
}

// postmaster waits until the control plane is up, which makes its token last of all, and gives the server's process.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "admin-token")); err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		if err != nil || len(lines) < 8 || strings.TrimSpace(lines[7]) != "ready" {
			continue
		}
		pid, err := strconv.Atoi(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatal("metald dev does not come up")
	return 0
}
