package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a site that runs in this process.
type running struct {
	control string
	printed string
	end     func() int
}

var controlLine = regexp.MustCompile(`Control: (http://\S+)`)

func start(t *testing.T, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, w, &stderr, append([]string{"--control", "127.0.0.1:0"}, args...)...)
		_ = w.Close()
	}()
	var out running
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		out.printed += lines.Text() + "\n"
		if m := controlLine.FindStringSubmatch(lines.Text()); m != nil {
			out.control = m[1]
		}
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			break
		}
	}
	drained := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, r)
		close(drained)
	}()
	ended := false
	out.end = func() int {
		if ended {
			return 0
		}
		ended = true
		cancel()
		<-drained
		return <-code
	}
	t.Cleanup(func() { out.end() })
	if out.control == "" {
		t.Fatalf("no control:\n%s%s", out.printed, &stderr)
	}
	return out
}

// ctl runs a command against the site.
func (r running) ctl(t *testing.T, args ...string) (string, string, int) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), &stdout, &stderr, append([]string{"ctl", "--control", r.control}, args...)...)
	return stdout.String(), stderr.String(), code
}

func TestASiteRuns(t *testing.T) {
	dir := t.TempDir()
	inventory := filepath.Join(dir, "machines.json")
	site := start(t, "--machines", "2", "--seed", "5", "--json", inventory, "--images", filepath.Join(dir, "images"))
	for _, want := range []string{"machine-1", "machine-2", "dell", "simos-1.raw"} {
		if !strings.Contains(site.printed, want) {
			t.Errorf("%q is missing:\n%s", want, site.printed)
		}
	}
	var machines []sim.Listed
	text, err := os.ReadFile(inventory)
	if err != nil || json.Unmarshal(text, &machines) != nil || len(machines) != 2 || machines[0].BMC.Password == "" || machines[0].BMC.Fingerprint == "" {
		t.Fatalf("%s %v", text, err)
	}
	if info, err := os.Stat(inventory); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	checkImage(t, site.printed)

	if out, _, code := site.ctl(t, "reset", "machine-1", "On"); code != 0 || out != "machine-1 is on\n" {
		t.Errorf("%d %s", code, out)
	}
	if out, _, code := site.ctl(t, "list"); code != 0 || !regexp.MustCompile(`machine-1 +standard +on`).MatchString(out) {
		t.Errorf("%d %s", code, out)
	}
	if out, _, code := site.ctl(t, "fault", `{"machine":"machine-2","hungBoots":1}`); code != 0 || out != "" {
		t.Errorf("%d %s", code, out)
	}
	if out, _, code := site.ctl(t, "reset", "machine-2", "On"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		out, _, code := site.ctl(t, "show", "machine-2")
		if code == 0 && strings.Contains(out, "hung after the self-test") && strings.Contains(out, "/dev/nvme0n1") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %s", code, out)
		}
	}
	if out, _, code := site.ctl(t, "disk", "machine-2", "0", "--length", "16"); code != 0 || !strings.HasPrefix(out, "00000000  00 00") {
		t.Errorf("%d %s", code, out)
	}
	if code := site.end(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// checkImage fetches an image and holds it to the printed digest.
func checkImage(t *testing.T, printed string) {
	t.Helper()
	line := regexp.MustCompile(`(http://\S+/simos-1\.raw) +\d+ +sha256:(\S+)`).FindStringSubmatch(printed)
	if line == nil {
		t.Fatal("no image is printed")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, line[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, res.Body); err != nil || hex.EncodeToString(h.Sum(nil)) != line[2] {
		t.Errorf("the digest differs: %v", err)
	}
}

func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, test := range map[string]struct {
		args []string
		says string
		code int
	}{
		"flag":        {[]string{"--colour", "red"}, "unknown flag", 2},
		"argument":    {[]string{"now"}, "now", 2},
		"machines":    {[]string{"--machines", "0"}, "--machines", 2},
		"personality": {[]string{"--personalities", "toaster"}, `"toaster"`, 2},
		"control":     {[]string{"--control", "0.0.0.0:0"}, "--control", 2},
		"no faults":   {[]string{"--faults", filepath.Join(dir, "none")}, "can't read", 2},
		"not a list":  {[]string{"--faults", write("a.yaml", "hungBoots: 1\n")}, "not a list", 2},
		"unknown":     {[]string{"--faults", write("b.yaml", "- hungBoots: 1\n- hungBots: 1\n")}, "b.yaml[1]", 2},
		"no machine":  {[]string{"--faults", write("c.yaml", "- machine: nobody\n  hungBoots: 1\n")}, "c.yaml[0]", 2},
		"no site":     {[]string{"ctl", "list", "--control", "http://127.0.0.1:1"}, "no site answers", 1},
		"ctl":         {[]string{"ctl", "show"}, "accepts 1 arg", 2},
		"fault":       {[]string{"ctl", "fault", "{"}, "fault:", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if code := execute(ctx, &stdout, &stderr, test.args...); code != test.code || !strings.Contains(stderr.String(), test.says) {
				t.Errorf("%d: %s", code, &stderr)
			}
		})
	}
}

func TestFaultsFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults.yaml")
	text := `- machine: machine-1
  hungBoots: 1
  rule: {path: "*/Systems*", method: GET, nth: 2, times: 1, status: 503, delay: 10ms, body: {error: {}}}
- deadDisk: {disk: 1, mode: reads-garbage}
  agentDiesAt: {kind: disk.wipe, after: true}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	faults, err := readFaults(file)
	if err != nil || len(faults) != 2 || faults[0].Rule.Status != 503 || time.Duration(faults[0].Rule.Delay) != 10*time.Millisecond || !faults[1].AgentDiesAt.After {
		t.Fatalf("%+v %v", faults, err)
	}
	site := start(t, "--machines", "1", "--faults", file)
	site.ctl(t, "reset", "machine-1", "On")
	if code := site.end(); code != 0 {
		t.Error(code)
	}
}

func TestHelpHasExamplesAndExitCodes(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"ctl", "--help"}, {"ctl", "list", "--help"}, {"ctl", "fault", "--help"}} {
		var stdout, stderr bytes.Buffer
		if code := execute(t.Context(), &stdout, &stderr, args...); code != 0 || !strings.Contains(stdout.String(), "EXIT STATUS") ||
			!strings.Contains(stdout.String(), "Examples:") {
			t.Errorf("%v: %d\n%s", args, code, &stdout)
		}
	}
}
