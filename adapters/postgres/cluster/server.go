package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
)

// socketName is the file in the socket's directory; the number stands for no port.
const socketName = "/.s.PGSQL.5432"

// The ways to shut down, as the server's main process takes them.
const (
	fast      = syscall.SIGINT  // end the sessions, write everything
	immediate = syscall.SIGQUIT // drop everything; the next start recovers from the write-ahead log
)

// process is a child whose end can be waited for by several.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

func begin(command *exec.Cmd) (*process, error) {
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{command: command, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = command.Wait() // how it ended is in the server's log
	}()
	return p, nil
}

// launch starts the server and its watchdog, and waits until the server answers. A server whose predecessor was
// killed cannot start before the last child of that one is gone, so a quick end is tried again.
func (c *Cluster) launch(ctx context.Context) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := c.launchOnce(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) || !strings.Contains(err.Error(), "still in use") {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *Cluster) launchOnce(ctx context.Context) error {
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the server's log cannot be written: %v", err)
	}
	defer func() { _ = log.Close() }() // the server has its own handle
	command := exec.Command(c.binaries.path("postgres"), c.serverArguments()...)
	c.account.become(command)
	command.Stderr = log
	if c.server, err = begin(command); err != nil {
		return fault.Wrap(err, fault.Unavailable, "PostgreSQL does not start: %v", err)
	}
	if err := c.watch(); err != nil {
		return errors.Join(err, c.halt(ctx, immediate))
	}
	if err := c.ready(ctx); err != nil {
		return errors.Join(err, c.halt(context.WithoutCancel(ctx), immediate))
	}
	return nil
}

func (c *Cluster) serverArguments() []string {
	settings := map[string]string{
		"listen_addresses":        "",
		"unix_socket_directories": `"` + strings.ReplaceAll(c.options.SocketDir, `"`, `""`) + `"`,
		"unix_socket_permissions": "0700",
		"port":                    "5432",
		"max_connections":         "200",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if c.options.FastUnsafe {
		for _, guard := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			settings[guard] = "off"
		}
	}
	for name, value := range c.options.Settings {
		settings[name] = value
	}
	arguments := []string{"-D", c.options.DataDir}
	for name, value := range settings {
		arguments = append(arguments, "--"+name+"="+value)
	}
	sort.Strings(arguments[2:])
	return arguments
}

// watch starts a shell that waits for the end of this process, which closes its input, and then shuts the server
// down.
func (c *Cluster) watch() error {
	command := exec.Command("/bin/sh", "-c", `read -r _; kill -INT "$0"`, fmt.Sprint(c.server.command.Process.Pid))
	c.account.become(command)
	if _, err := command.StdinPipe(); err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	var err error
	if c.watchdog, err = begin(command); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the watchdog of PostgreSQL does not start: %v", err)
	}
	return nil
}

// ready polls until the server takes a session.
func (c *Cluster) ready(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, c.DSN("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-c.server.ended:
			text, _ := os.ReadFile(c.logFile()) // an unreadable log has no last lines
			return fault.New(fault.Unavailable, "PostgreSQL ended while it started: %s", lastLines(text)).
				WithRemedy("read " + c.logFile())
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Unavailable, "PostgreSQL did not answer in time").
				WithRemedy("read " + c.logFile())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// halt shuts the server down and returns when it is gone. A clean shutdown that takes too long becomes an immediate
// one.
func (c *Cluster) halt(ctx context.Context, how syscall.Signal) error {
	if c.server == nil {
		return nil
	}
	err := end(ctx, c.server, how)
	if c.watchdog != nil { // only now: until here it was needed
		err = errors.Join(err, end(ctx, c.watchdog, syscall.SIGKILL))
	}
	c.server, c.watchdog = nil, nil
	return err
}

func end(ctx context.Context, p *process, how syscall.Signal) error {
	patience, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for _, signal := range []syscall.Signal{how, immediate, syscall.SIGKILL} {
		if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal PostgreSQL: %w", err)
		}
		select {
		case <-p.ended:
			return nil
		case <-patience.Done():
		}
		patience, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
	}
	return fault.New(fault.Unavailable, "PostgreSQL does not end")
}

func (c *Cluster) logFile() string { return c.options.DataDir + ".log" }

// lastLines is the end of what a program said, on one line.
func lastLines(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// pidFile is written by the server's main process, its own id in the first line.
func (c *Cluster) pidFile() string { return filepath.Join(c.options.DataDir, "postmaster.pid") }
