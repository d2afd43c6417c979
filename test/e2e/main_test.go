// Package e2e runs the built programs as their users do, and breaks them.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// daemon is a running metald.
type daemon struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	log    *tail
	exited chan struct{}
}

// start runs metald until it answers.
func start(t *testing.T, url string, environ []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, url: url, log: &tail{}, exited: make(chan struct{})}
	d.cmd = exec.Command(lab.Path(t, "metald"), args...)
	d.cmd.Env = append(os.Environ(), environ...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	t.Cleanup(d.kill)
	eventually(t, time.Minute, "metald to answer", func() error {
		select {
		case <-d.exited:
			t.Fatalf("metald ended: %s", d.log)
		default:
		}
		return d.ready()
	})
	return d
}

func (d *daemon) ready() error {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(d.url, "http://"), time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "GET /readyz HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(status, " 200 ") {
		return fmt.Errorf("%s %w", strings.TrimSpace(status), err)
	}
	return nil
}

// kill is kill -9.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// stop asks it to end and gives how it ended.
func (d *daemon) stop() int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.exited:
	case <-time.After(time.Minute):
		d.t.Fatalf("metald does not stop: %s", d.log)
	}
	return d.cmd.ProcessState.ExitCode()
}

// tail keeps what a program says, for when it matters.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is io.Writer's.
func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is everything so far.
func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func eventually(t *testing.T, within time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", within, what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	return lab.FreeAddress(t)
}

// dataDir is a directory through which the database's account can pass.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "metal-dev-") //nolint:usetesting // t.TempDir is for one account only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func dial(t *testing.T, url, token string, attempts int) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Token: token, Attempts: attempts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// estate makes a site and a pool.
func estate(t *testing.T, c *client.Client) contract.Pool {
	t.Helper()
	ctx := context.Background()
	site, err := c.CreateSite(ctx, contract.NewSite{Tenant: tenant.Root.String(), Name: "fra1"})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := c.CreatePool(ctx, contract.NewPool{Tenant: tenant.Root.String(), Site: site.ID, Name: "gpu"})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func enroll(t *testing.T, c *client.Client, pool, address string) contract.Node {
	t.Helper()
	n, err := c.Enroll(context.Background(), contract.Enrollment{Pool: pool, BMC: contract.BMCAccess{
		Address: address, Credentials: contract.Credentials{Username: "root", Password: "calvin"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled waits until an enrolled node has its workflow. That waits for an agent of the site, and there is none: from then on only
// those who are asked to change the node.
func settled(t *testing.T, c *client.Client, n contract.Node) contract.Node {
	t.Helper()
	eventually(t, time.Minute, "the node to have its workflow", func() (err error) {
		if n, err = c.GetNode(context.Background(), n.ID); err == nil && n.Workflow == "" {
			err = errors.New("it has none")
		}
		return err
	})
	return n
}

func readToken(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "admin-token")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file has mode %s", info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
