package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// runs is one command line, run in this process.
func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code = execute(t.Context(), &out, &complaints, args...)
	return code, out.String(), complaints.String()
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	for line, words := range map[string][]string{
		"bogus":                     {`"bogus"`, "see 'metald --help'"},
		"dev extra":                 {`"extra"`, "see 'metald dev --help'"},
		"serve --bogus":             {"--bogus", "see 'metald serve --help'"},
		"projections bogus":         {`"bogus"`, "see 'metald projections --help'"},
		"secrets bogus":             {`"bogus"`, "see 'metald secrets --help'"},
		"version 1":                 {`"1"`, "see 'metald version --help'"},
		"serve --drain soon":        {"soon", "see 'metald serve --help'"},
		"completion bash a b c d e": {"see 'metald completion bash --help'"},
	} {
		code, stdout, stderr := runs(t, strings.Fields(line)...)
		if code != program.ExitBadConfig || stdout != "" {
			t.Errorf("%s: exit code %d, output %q", line, code, stdout)
		}
		wantWords(t, stderr, append(words, "INVALID_INPUT")...)
	}
}

func TestRightArguments(t *testing.T) {
	for line, word := range map[string]string{
		"": "metald serve", "--help": "EXIT STATUS", "secrets": "rewrap", "projections --help": "verify",
		"version": program.Version(), "--version": program.Version(),
	} {
		code, stdout, stderr := runs(t, strings.Fields(line)...)
		if code != 0 || stderr != "" {
			t.Errorf("%q: exit code %d, %s", line, code, stderr)
		}
		wantWords(t, stdout, word)
	}
}

// Everything that is wrong is told at once, wherever it was given.
func TestEveryIssueAtOnce(t *testing.T) {
	t.Setenv("METAL_DRAIN", "abc")
	t.Setenv("METAL_LISTEN", "zz")
	code, _, stderr := runs(t, "dev", "--log-format", "xml")
	if code != program.ExitBadConfig {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, stderr, "INVALID_CONFIG", "METAL_DRAIN: ", "METAL_LISTEN: host:port", "--log-format: ")

	file := filepath.Join(t.TempDir(), "metald.yaml")
	if err := os.WriteFile(file, []byte("bogus: 1\ntls-cert: /nowhere/crt\npolicies: [a]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = runs(t, "serve", "--postgres", "postgres://u:hunter2@h/db", "--listen", "nope", "--log-level", "loud",
		"--config", file, "--admin-token-file", "/nowhere/token", "--master-key-file", "/nowhere/key", "--eventstore", "http://x")
	if code != program.ExitBadConfig || strings.Contains(stderr, "hunter2") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	wantWords(t, stderr, "--postgres: a password", "--listen: ", "--log-level: ", "METAL_DRAIN: ", file+": bogus: there is no",
		file+": policies: a single value", file+": tls-cert: stat /nowhere/crt", "--tls-key: needed",
		"--admin-token-file: open /nowhere/token", "--master-key-file: ", "/nowhere/key", "--eventstore: ")

	code, _, stderr = runs(t, "secrets", "rewrap", "--postgres", "")
	if code != program.ExitBadConfig {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, stderr, "--postgres: needed", "--master-key-file: there is no master key", "--new-master-key-file: needed")

	code, _, stderr = runs(t, "replay", "--until", "noon")
	if code != program.ExitBadConfig {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, stderr, "--stream: needed", "--until: ", "--postgres: needed")
}

func TestCauseIsNotToldTwice(t *testing.T) {
	_, stdout, stderr := runs(t, "migrate", "--postgres", "host=/nowhere/at/all user=u")
	if stdout != "" || strings.Count(stderr, "no such file or directory") > 2 { // once for each address that was tried
		t.Errorf("%s%s", stdout, stderr)
	}
}

// Kernel arguments hold commas, and one variable of the environment may hold several.
func TestKernelArguments(t *testing.T) {
	var c config
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.bindServer(flags, ":1", ":2")
	for _, given := range []string{"console=ttyS0,115200 quiet", "panic=-1"} {
		if err := flags.Set("ramdisk-arg", given); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"console=ttyS0,115200", "quiet", "panic=-1"}
	if got := c.plane(postgres.MasterKey{}, "").KernelArgs; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
