package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/metal/test/pgtest"
)

// built is where the programs of this process are, built by the first test that needs one.
var built struct {
	sync.Mutex
	dir    string
	failed error
}

// Main runs the tests of a package, as pgtest.Main does, and removes the programs that were built for them.
// Tests that run side by side wait far more than they compute, so more of them do than there are processors.
func Main(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "32") // the flag is testing's own
	pgtest.Main(sweeping{m})
}

type sweeping struct{ m *testing.M }

// Run runs the tests.
func (s sweeping) Run() int {
	code := s.m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // what is left is in the way of nobody
	}
	return code
}

// programs names a folder with programs that were built already, as make build does.
const programs = "METAL_LAB_PROGRAMS"

// Path is where one of the programs is. The first call builds all of them, unless METAL_LAB_PROGRAMS says where they are.
func Path(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv(programs); dir != "" {
		return filepath.Join(dir, name)
	}
	built.Lock()
	defer built.Unlock()
	if built.dir == "" && built.failed == nil {
		built.dir, built.failed = build()
	}
	if built.failed != nil {
		t.Fatalf("build the programs: %v", built.failed)
	}
	return filepath.Join(built.dir, name)
}

func build() (string, error) {
	root, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "metal-programs-")
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./cmd/...")
	c.Dir, c.Env = strings.TrimSpace(string(root)), append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if out, err := c.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%w: %s", err, out), os.RemoveAll(dir))
	}
	return dir, nil
}

// Program is a program that runs, or has run, and can be started again.
type Program struct {
	t       testing.TB
	name    string
	path    string
	environ []string
	args    []string
	answers func() error                   // nil once it serves
	within  func(start func() error) error // starts it somewhere else; nil: here
	log     *record

	cmd    *exec.Cmd
	exited chan struct{}
}

// newProgram is one that does not run yet. What it said is shown when the test has failed.
func newProgram(t testing.TB, name string, environ []string, args ...string) *Program {
	t.Helper()
	p := &Program{t: t, name: name, path: Path(t, name), environ: environ, args: args, log: &record{}}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of what %s said:\n%s", p.name, p.log.end(120))
		}
	})
	return p
}

// Metald is a metald that does not run yet, with arguments of one's own; it serves at address.
func Metald(t testing.TB, address string, environ []string, args ...string) *Program {
	t.Helper()
	p := newProgram(t, "metald", environ, args...)
	p.answers = func() error { return ready(address) }
	return p
}

// Start runs it, and returns once it answers.
func (p *Program) Start() {
	p.t.Helper()
	if err := p.Run(); err != nil {
		p.t.Fatal(err)
	}
}

// startPatience bounds how long a program may take until it answers.
const startPatience = 90 * time.Second

// Run is Start for goroutines that are not the test's.
func (p *Program) Run() error {
	p.cmd, p.exited = exec.CommandContext(context.Background(), p.path, p.args...), make(chan struct{})
	p.cmd.Env = append(os.Environ(), p.environ...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	endWithParent(p.cmd)
	if err := p.start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // how it ended is in what it said
		close(exited)
	}(p.cmd, p.exited)
	if p.answers == nil {
		return nil
	}
	return Poll(startPatience, p.name+" to answer", func() error {
		select {
		case <-p.exited:
			return errEnded{fmt.Errorf("%s ended: %s", p.name, p.log.end(30))}
		default:
			return p.answers()
		}
	})
}

func (p *Program) start() error {
	if p.within != nil {
		return p.within(p.cmd.Start)
	}
	return p.cmd.Start()
}

// Kill is kill -9. A program that does not run is left alone.
func (p *Program) Kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// Stop asks it to end, and gives its exit code.
func (p *Program) Stop() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(startPatience):
		p.t.Fatalf("%s does not stop", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Said is everything that it has said, over all its runs.
func (p *Program) Said() string { return p.log.all() }

// record keeps what a program says.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is io.Writer's.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// end is the last lines.
func (r *record) end(lines int) string {
	all := slices.DeleteFunc(strings.Split(strings.TrimSpace(r.all()), "\n"), func(line string) bool {
		return strings.Contains(line, "msg=request") && strings.Contains(line, "status=2") // requests that went well
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// run runs one command line to its end.
func run(t testing.TB, name string, environ []string, args ...string) (string, error) {
	c := exec.CommandContext(context.Background(), Path(t, name), args...)
	c.Env = append(os.Environ(), environ...)
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// errEnded is an error after which trying again is of no use.
type errEnded struct{ error }

// Poll tries until it succeeds, or the time is up.
func Poll(within time.Duration, what string, try func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := try()
		var over errEnded
		if err == nil || errors.As(err, &over) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s: %w", within, what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// ready asks metald whether it is.
func ready(address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it was read
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET /readyz HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(status, " 200 ") {
		return fmt.Errorf("%s %w", strings.TrimSpace(status), err)
	}
	return nil
}

func dial(address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", address)
}

// listening tells whether something listens at an address.
func listening(address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// FreeAddress was free a moment ago, and is given once only: its program may be away for a while.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return freeAddressOf(t, "127.0.0.1")
}

// The ports below those that systems give to whoever asks for any: a program of the lab that does can't take one that is
// meant for another.
const (
	firstPort = 12000
	ports     = 20000
)

func freeAddressOf(t testing.TB, host string) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(firstPort + rand.IntN(ports))
		if !reserve(port) {
			continue
		}
		address := net.JoinHostPort(host, port)
		if l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address); err == nil {
			_ = l.Close() // the port is wanted, not the listener
			return address
		}
	}
	t.Fatalf("%s has no free port from %d on", host, firstPort)
	return ""
}

// reserved is the marks at the ports that this process gave away.
var reserved sync.Map

// reserve takes a port until this process ends, from other processes that test, too: the UDP port of the same number, which no
// program of the lab uses, is the mark. False: somebody has it.
func reserve(port string) bool {
	mark, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		reserved.Store(port, mark)
	}
	return err == nil
}
