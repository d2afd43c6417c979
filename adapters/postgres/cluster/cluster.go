// Package cluster runs a private PostgreSQL from the binaries that are installed on the machine: for metald dev and
// for tests. It listens on a unix socket only, and belongs to the process that started it: when that process ends,
// even by kill -9, the server shuts down cleanly.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
)

// Options say where a cluster lives.
type Options struct {
	// DataDir is PostgreSQL's own data directory, made by the first start. Beside it stand DataDir.lock, held while the
	// cluster runs, and DataDir.log, what the server says.
	DataDir string
	// SocketDir is where the unix socket is made, a directory for it alone. Empty: DataDir.socket. Where that is too
	// long for a socket's address (107 bytes): a directory under /tmp whose name follows from DataDir.
	SocketDir string
	// FastUnsafe turns off every guard against losing data in a crash of the machine. For tests only.
	FastUnsafe bool
	// Settings are further server settings, by name.
	Settings map[string]string
}

// Cluster is a running server. Its methods are not for use by several goroutines at once.
type Cluster struct {
	options  Options
	account  account
	binaries binaries
	lock     *os.File
	server   *process
	watchdog *process
}

// superuser owns the cluster. The socket's directory is open to the server's own account and root only, so that no
// password is needed.
const superuser = "metal"

// Start starts the cluster, makes it first where DataDir does not exist, and returns once it answers. A server that
// an earlier process left behind is shut down and started again. Errors are INVALID_CONFIG with a remedy where the
// machine, the directory or another process stands in the way, UNAVAILABLE where the server does not come up.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{options: o}
	if c.options.DataDir, err = filepath.Abs(o.DataDir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if c.account, err = serverAccount(); err != nil {
		return nil, err
	}
	if err := c.account.ownDirectory(filepath.Dir(c.options.DataDir)); err != nil {
		return nil, err
	}
	if c.lock, err = lockFile(ctx, c.options.DataDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.lock.Close() // gives the lock back
		}
	}()
	if c.options.SocketDir, err = c.account.socketDirectory(c.options); err != nil {
		return nil, err
	}
	if c.binaries, err = c.prepare(ctx); err != nil {
		return nil, err
	}
	if err := c.endLeftover(ctx); err != nil {
		return nil, err
	}
	if err := c.launch(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// DSN is the connection string of a database of the cluster, a URL without a secret.
func (c *Cluster) DSN(database string) string {
	u := url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: url.Values{
		"host": {c.options.SocketDir}, "user": {superuser}, "sslmode": {"disable"},
	}.Encode()}
	return u.String()
}

// BinDir is where the binaries of the running version are, pgbench among them.
func (c *Cluster) BinDir() string { return string(c.binaries) }

// Ended is closed when the server that runs now has ended, by Stop, Crash or Restart or by itself.
func (c *Cluster) Ended() <-chan struct{} { return c.server.ended }

// CreateDatabase makes a database unless it exists.
func (c *Cluster) CreateDatabase(ctx context.Context, name string) (err error) {
	conn, err := pgx.Connect(ctx, c.DSN("postgres"))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the private PostgreSQL does not answer")
	}
	defer func() { _ = conn.Close(ctx) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "database %s cannot be made", name)
	}
	return nil
}

// Stop shuts the server down: sessions are ended, what is committed is written. It returns once the server is gone.
func (c *Cluster) Stop(ctx context.Context) error {
	err := c.halt(ctx, fast)
	_ = os.Remove(c.options.SocketDir) // it stays where something else is in it
	return errors.Join(err, c.lock.Close())
}

// Crash kills the server as a failing machine would, without a chance to write anything, and starts it again; it
// returns once recovery is done. For tests of what stands above.
func (c *Cluster) Crash(ctx context.Context) error {
	if err := c.halt(ctx, immediate); err != nil {
		return err
	}
	return c.launch(ctx)
}

// Restart shuts the server down cleanly and starts it again.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := c.halt(ctx, fast); err != nil {
		return err
	}
	return c.launch(ctx)
}

// prepare finds the binaries that fit the data directory, and makes the directory where there is none.
func (c *Cluster) prepare(ctx context.Context) (binaries, error) {
	version, err := dataVersion(c.options.DataDir)
	if err != nil {
		return "", err
	}
	b, err := findBinaries(version)
	if err != nil || version != 0 {
		return b, err
	}
	return b, c.initialise(ctx, b)
}

// initialise makes the data directory beside its place and moves it there when it is whole, so that a crash half-way
// leaves nothing half-done.
func (c *Cluster) initialise(ctx context.Context, b binaries) error {
	scratch := c.options.DataDir + ".new"
	if err := os.RemoveAll(scratch); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the remains of an earlier start cannot be removed: %s", scratch)
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the data directory cannot be made: %v", err)
	}
	if err := c.account.own(scratch); err != nil {
		return err
	}
	arguments := []string{"-D", scratch, "-U", superuser, "--encoding=UTF8", "--locale=C", "--auth-local=trust",
		"--auth-host=reject", "--no-instructions", "--data-checksums"}
	if c.options.FastUnsafe {
		arguments = append(arguments, "--no-sync")
	}
	command := exec.CommandContext(ctx, b.path("initdb"), arguments...)
	c.account.become(command)
	if output, err := command.CombinedOutput(); err != nil {
		return fault.Wrap(err, fault.Unavailable, "initdb failed: %s", lastLines(output))
	}
	if err := os.Rename(scratch, c.options.DataDir); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the data directory cannot be put in its place: %v", err)
	}
	return nil
}

// stopPatience is how long a clean shutdown may take before it is made an immediate one.
const stopPatience = 30 * time.Second
