//go:build netns

package netns

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The addresses of the network. The machine has none at first.
const (
	siteAddress = "10.77.0.2"
	dhcpAddress = "10.77.0.3"
	link        = "net0" // as the interface is called in each namespace
)

// programs is where bcd is built to: others than root can reach it too.
var programs string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if programs, err = os.MkdirTemp("", "metal-netns-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(programs) //nolint:errcheck // it is the system's directory for such things
	if err := os.Chmod(programs, 0o755); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// built builds bcd once.
var built = sync.OnceValues(func() (string, error) {
	bcd := filepath.Join(programs, "bcd")
	build := exec.Command("go", "build", "-o", bcd, "./cmd/bcd") // without the context of the test that happens to be first
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bcd, nil
})

// network is a switch with three namespaces on it: the site agent, the DHCP server, a machine.
type network struct {
	t      *testing.T
	prefix string
	bcd    string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run it as root")
	}
	bcd, err := built()
	if err != nil {
		t.Fatalf("bcd is not built: %v", err)
	}
	n := &network{t: t, prefix: fmt.Sprintf("metal-test-%d-", os.Getpid()), bcd: bcd}
	n.ip("netns", "add", n.name("switch"))
	t.Cleanup(func() { n.ip("netns", "del", n.name("switch")) })
	n.in("switch", "link", "add", "br0", "type", "bridge")
	n.in("switch", "link", "set", "br0", "up")
	n.join("site", siteAddress+"/24")
	n.join("dhcp", dhcpAddress+"/24")
	n.join("machine", "")
	return n
}

func (n *network) name(host string) string { return n.prefix + host }

// join puts a namespace on the switch.
func (n *network) join(host, address string) {
	n.ip("netns", "add", n.name(host))
	n.t.Cleanup(func() { n.ip("netns", "del", n.name(host)) })
	n.in("switch", "link", "add", host, "type", "veth", "peer", "name", link, "netns", n.name(host))
	n.in("switch", "link", "set", host, "master", "br0", "up")
	n.in(host, "link", "set", "lo", "up")
	n.in(host, "link", "set", link, "up")
	if address != "" {
		n.in(host, "address", "add", address, "dev", link)
	}
}

func (n *network) in(host string, args ...string) {
	n.ip(append([]string{"-n", n.name(host)}, args...)...)
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	// The cleanup runs after the test's context has ended.
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("this host makes no such network (iproute2 and root are needed): ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// inside runs f on a thread in a namespace. What f opens stays there; the thread is not used for anything else.
func (n *network) inside(host string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		file, err := os.Open("/var/run/netns/" + n.name(host))
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = file.Close() }()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// program is a running bcd.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan error
	once  sync.Once

	mu  sync.Mutex
	log bytes.Buffer
}

// Write takes its log.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// site starts a site agent in a namespace, without a control plane, and waits until it serves.
func (n *network) site(host, state string, args ...string) *program {
	n.t.Helper()
	token := filepath.Join(state, "token")
	if err := os.WriteFile(token, []byte("a-token\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	p := &program{t: n.t, ended: make(chan error, 1)}
	p.cmd = exec.Command("ip", append([]string{
		"netns", "exec", n.name(host), n.bcd, "site", "--boot-alone", "--gateway", "https://127.0.0.1:1", "--ca-sha256", strings.Repeat("a", 64),
		"--state-dir", state, "--token-file", token, "--log-level", "debug", "--dhcp-interface", link,
	}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, p
	if err := p.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	n.t.Cleanup(func() {
		p.stop()
		if n.t.Failed() {
			n.t.Logf("bcd in %s:\n%s", host, p.text())
		}
	})
	p.says("serving network boot")
	return p
}

// stop ends it by a signal and wants it to end in order.
func (p *program) stop() {
	p.once.Do(func() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			p.t.Errorf("bcd can't be stopped: %v", err)
		}
		select {
		case err := <-p.ended:
			if err != nil {
				p.t.Errorf("bcd ended with %v", err)
			}
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			p.t.Error("bcd does not end")
		}
	})
}

// says waits for a line in its log.
func (p *program) says(line string) {
	p.t.Helper()
	eventually(p.t, "bcd says "+line, func() bool { return strings.Contains(p.text(), line) })
}

// patience is how long a test waits for what should be there soon, on a busy computer.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
