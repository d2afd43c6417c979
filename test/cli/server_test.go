package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/test/pgtest"
)

// What must never come back out: a BMC's password, and the key and the token of the installation.
const (
	plantedPassword = "planted-p4ss \"word'\\"
	plantedKey      = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c5b6a7988"
	plantedToken    = "planted-token-of-the-first-administrator"
)

var rootTenant = tenant.Root.String()

// server is a metald over a database of its own.
type server struct {
	url, tokenFile string
	dsn            string // of its database
	out            *output
}

// serve starts metald on a free port, and waits until it says that it serves.
func serve(t *testing.T, programs string) *server {
	t.Helper()
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(plantedToken), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{tokenFile: tokenFile, dsn: pgtest.DSN(t), out: newOutput()}
	cmd := exec.Command(filepath.Join(programs, "metald"), "serve", "--insecure-http", "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0",
		"--admin-token-file", tokenFile, "--postgres", s.dsn)
	cmd.Env = append(os.Environ(), "METAL_MASTER_KEY="+plantedKey)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in what it said
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill() // it may have ended
			<-ended
			t.Errorf("metald did not stop:\n%s", s.out)
		}
	})
	select {
	case s.url = <-s.out.serving:
	case <-ended:
		t.Fatalf("metald ended:\n%s", s.out)
	case <-time.After(patience):
		t.Fatalf("metald does not serve:\n%s", s.out)
	}
	return s
}

// check looks for what must not be there in everything that metald said.
func (s *server) check(t *testing.T) {
	t.Helper()
	for _, secret := range []string{plantedPassword, plantedKey, plantedToken, "planted-p4ss"} {
		if strings.Contains(s.out.String(), secret) {
			t.Errorf("metald said a secret: %s", secret)
		}
	}
}

// output keeps what metald says, and tells the address once it serves.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	serving chan string
	told    bool
}

func newOutput() *output { return &output{serving: make(chan string, 1)} }

var address = regexp.MustCompile(`msg=serving address=(http://\S+)`)

// Write is io.Writer's.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if found := address.FindSubmatch(o.text.Bytes()); found != nil && !o.told {
		o.told = true
		o.serving <- string(found[1])
	}
	return len(p), nil
}

// String is everything so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
