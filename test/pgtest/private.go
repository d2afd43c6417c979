package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/postgres/cluster"
)

// Cluster is a private cluster of the test's own, for tests that kill the server. It is as durable as a real one.
func Cluster(t testing.TB, settings map[string]string) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	directory, err := directory()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	c, err := cluster.Start(ctx, cluster.Options{DataDir: filepath.Join(directory, "data"), Settings: settings})
	if err != nil {
		t.Fatalf("pgtest: %s", withRemedy(err))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("pgtest: %v", err)
		}
		if err := os.RemoveAll(directory); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return c
}

// private starts the cluster that the tests of this process share.
func private(ctx context.Context) (c *cluster.Cluster, remove func() error, err error) {
	sweep()
	directory, err := directory()
	if err != nil {
		return nil, nil, err
	}
	c, err = cluster.Start(ctx, cluster.Options{DataDir: filepath.Join(directory, "data"), FastUnsafe: true})
	return c, func() error { return os.RemoveAll(directory) }, err
}

// prefix names our directories in the directory for temporary files.
const prefix = "metal-pgtest-"

// directory is a new one that the server's account can reach.
func directory() (string, error) {
	directory, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	return directory, os.Chmod(directory, 0o755)
}

// sweep removes what processes that were killed left behind: their servers ended with them, their files did not. One
// whose lock is held is alive; one that is young may not have taken its lock yet.
func sweep() {
	directories, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return
	}
	for _, directory := range directories {
		info, err := os.Stat(directory)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(directory, "data.lock"), os.O_RDWR, 0)
		if err == nil && syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			_ = lock.Close()
			continue
		}
		_ = os.RemoveAll(directory)
		if err == nil {
			_ = lock.Close()
		}
	}
}
