// Package cli runs metalctl as people and scripts do: every script of testdata is a session on the command line, those
// under server against a metald of their own over a real PostgreSQL.
//
// What is compared is in the scripts; go test ./test/cli -update writes it anew.
package cli

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/better-compute/metal/test/pgtest"
)

var update = flag.Bool("update", false, "write what the scripts compare anew")

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestScripts(t *testing.T) {
	programs := build(t)
	for _, script := range scripts(t, "local") {
		t.Run(name(script), func(t *testing.T) {
			t.Parallel()
			run(t, programs, script, nil)
		})
	}
	for _, script := range scripts(t, "server") {
		t.Run(name(script), func(t *testing.T) {
			t.Parallel()
			run(t, programs, script, serve(t, programs))
		})
	}
}

func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", dir+"/", "../../cmd/metalctl", "../../cmd/metald")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return dir
}

func scripts(t *testing.T, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no script in %s: %v", folder, err)
	}
	return found
}

func name(script string) string { return strings.TrimSuffix(filepath.Base(script), ".txtar") }

// run plays one script. at is the server that it speaks to; nil: none.
func run(t *testing.T, programs, script string, at *server) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Files:         []string{script},
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("NO_COLOR", "")
			if at == nil {
				return nil
			}
			env.Setenv("METAL_URL", at.url)
			env.Setenv("METAL_TOKEN_FILE", at.tokenFile)
			env.Setenv("METAL_BMC_USERNAME", "root")
			env.Setenv("METAL_BMC_PASSWORD", plantedPassword)
			env.Setenv("ROOT", rootTenant)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"eventually": eventually,
			"exits":      exits,
			"keep":       keep,
			"plain":      plain,
			"say":        say,
			"tamper":     at.tamper,
		},
	})
	if at != nil {
		at.check(t)
	}
}
