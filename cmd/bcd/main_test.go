package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/cmd/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bcd runs one command line.
func bcd(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(ctx, &out, &errs, args...)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"site", "--help"}, {"node", "--help"}, {"ramdisk", "--help"}, {"image", "--help"},
		{"image", "build-ramdisk", "--help"}, {"version", "--help"}, {}} {
		code, out, _ := bcd(t.Context(), args...)
		if code != 0 || !strings.Contains(out, "EXIT STATUS") {
			t.Errorf("%v: %d\n%s", args, code, out)
		}
	}
	if code, out, _ := bcd(t.Context(), "version"); code != 0 || strings.TrimSpace(out) == "" {
		t.Errorf("version: %d, %q", code, out)
	}
}

func TestEveryIssueIsToldAtOnce(t *testing.T) {
	t.Setenv("BCD_LOG_LEVEL", "loud")
	code, _, errs := bcd(t.Context(), "site", "--gateway", "http://x", "--state-dir", t.TempDir(), "--drivers", "redfish,smoke",
		"--boot-listen", "8081", "--proxy-allow", "all", "--room", "0", "--log-format", "x")
	if code != program.ExitBadConfig {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{
		"--gateway:", "--ca-sha256:", "--token-file:", "--drivers:", "--boot-listen:", "--boot-url:", "--proxy-allow:", "--room:",
		"BCD_LOG_LEVEL:", "--log-format:",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("no word of %s in\n%s", want, errs)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"nope"}, {"site", "x"}, {"--nope"}, {"site", "--room", "many"}} {
		if code, _, errs := bcd(t.Context(), args...); code != program.ExitBadConfig || !strings.Contains(errs, "--help") {
			t.Errorf("%v: %d\n%s", args, code, errs)
		}
	}
}

func TestTheTokenStaysAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + ".gone"} {
		code, _, errs := bcd(t.Context(), "site", "--gateway", "https://x", "--ca-sha256", strings.Repeat("a", 64), "--state-dir",
			t.TempDir(), "--token-file", file)
		if code != program.ExitBadConfig || !strings.Contains(errs, "--token-file") {
			t.Errorf("%d\n%s", code, errs)
		}
	}
}

// While the control plane is away the site agent goes on, and machines are still told to boot from their disks. A signal
// ends it in order.
func TestASiteAgentRunsUntilItIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("a-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway, boot := free(t), free(t)
	ended := make(chan int, 1)
	go func() {
		code, _, _ := bcd(ctx, "site", "--gateway", "https://"+gateway, "--ca-sha256", strings.Repeat("AA:", 31)+"AA", "--state-dir",
			t.TempDir(), "--token-file", path, "--boot-listen", boot, "--boot-url", "http://"+boot, "--log-level", "error")
		ended <- code
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	text := ""
	for deadline := time.Now().Add(time.Minute); text == "" && time.Now().Before(deadline); {
		answer, err := client.Get("http://" + boot + "/boot/02:00:00:00:00:01")
		if err != nil {
			continue
		}
		b, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil {
			text = string(b)
		}
	}
	if !strings.Contains(text, "UNAVAILABLE") { // without the control plane it has no boot lease
		t.Errorf("the script is %q", text)
	}
	cancel()
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("exit %d", code)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// free finds an address that nobody listens on, below the ports that systems give to whoever asks for any: nobody happens to take it.
func free(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close() // the port is wanted, not the listener
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}
