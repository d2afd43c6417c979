package cli

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long what others do may take on a busy computer.
const patience = 2 * time.Minute

// exits CODE PROGRAM ARGS... runs a program that must end with a code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("it exits with %d, not %d", got, want)
	}
}

// eventually PATTERN PROGRAM ARGS... runs a program again and again until what it prints matches.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN PROGRAM ARGS...")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%s never came", args[0])
}

// keep VAR puts what was printed into the environment.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keep VAR")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// say FILE TEXT writes one line to a file.
func say(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: say FILE TEXT")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(args[1]+"\n"), 0o600))
}

// changing is what differs from run to run, and what stands for it. Ids are numbered in the order in which they appear.
var changing = []struct {
	pattern *regexp.Regexp
	stands  string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "URL"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "HASH"},
}

var ids = regexp.MustCompile(`\b(node|tenant|site|pool|prn|bnd|tok|wf|img|jtk|agt|cmd)_[0-9a-hjkmnp-tv-z]{26}\b`)

// plain FILE OUT writes a file (stdout and stderr among them) to another, with what changes from run to run replaced.
func plain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: plain FILE OUT")
	}
	text := ts.ReadFile(args[0])
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.stands)
	}
	seen := map[string]string{}
	count := map[string]int{}
	text = ids.ReplaceAllStringFunc(text, func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		if seen[id] == "" {
			count[kind]++
			seen[id] = strings.ToUpper(kind) + strconv.Itoa(count[kind])
		}
		return seen[id]
	})
	text = regexp.MustCompile(`  +`).ReplaceAllString(text, "  ") // the widths of columns go with the ids
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}
