package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// root is the top of the module, from this package's folder.
const root = ".."

// TestTheHouse applies every rule to the whole module.
func TestTheHouse(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages only", len(packages))
	}
	for _, p := range packages {
		for _, issue := range append(importIssues(p), packageIssues(p)...) {
			t.Error(issue)
		}
	}
	if seen := eachFile(t, func(file string, source []byte) {
		for _, issue := range fileIssues(file, source) {
			t.Error(issue)
		}
	}); seen < 50 {
		t.Errorf("only %d Go files were looked at", seen)
	}
}

func listPackages(t *testing.T) (packages []pkg) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list",
		"-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports", "./...")
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			pkg
			Dir                                string
			GoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) == 0 { // of a folder with tests only, go list tells no comment
			p.Doc = docOf(t, p.Dir, append(p.TestGoFiles, p.XTestGoFiles...))
		}
		packages = append(packages, p.pkg)
	}
}

// docOf is the package comment in any of the files.
func docOf(t *testing.T, directory string, files []string) string {
	t.Helper()
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(directory, file), nil,
			parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if tree.Doc != nil {
			return tree.Doc.Text()
		}
	}
	return ""
}

// eachFile visits the module's own Go files and says how many there are.
func eachFile(t *testing.T, visit func(file string, source []byte)) (seen int) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), "."), entry.Name() == "testdata":
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		seen++
		visit(filepath.ToSlash(file), source)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestTheLintersSeeEveryFile: what is behind a build tag that they are not told of, they never read.
func TestTheLintersSeeEveryFile(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var linters struct {
		Run struct {
			BuildTags []string `yaml:"build-tags"`
		}
	}
	if err := yaml.Unmarshal(raw, &linters); err != nil {
		t.Fatal(err)
	}
	tagged := 0
	eachFile(t, func(file string, source []byte) {
		for line := range strings.Lines(string(source)) {
			rule, err := constraint.Parse(strings.TrimSpace(line))
			if err != nil {
				continue // no constraint
			}
			tagged++
			seen := func(linux bool) bool {
				return rule.Eval(func(tag string) bool { return tag == "linux" && linux || slices.Contains(linters.Run.BuildTags, tag) })
			}
			if !seen(true) && !seen(false) {
				t.Errorf("%s needs %s, which .golangci.yml does not set in run.build-tags", file, rule)
			}
		}
	})
	if tagged < 5 {
		t.Errorf("only %d constraints were found", tagged)
	}
}

// TestPlantedImports shows that each direction and each fence notices what it is there for.
func TestPlantedImports(t *testing.T) {
	const uuid, typeid, pgx = "github.com/google/uuid", "go.jetify.com/typeid", "github.com/jackc/pgx/v5"
	for _, test := range []struct {
		from    string
		allowed []string
		refused []string
	}{
		{"domain/event", []string{"strings", uuid}, []string{module + "domain/fault", pgx, "os", "sync"}},
		{"domain/fault", []string{"fmt"}, []string{module + "domain/event"}},
		{"domain/id", []string{uuid, typeid}, []string{module + "domain/event", "github.com/oklog/ulid"}},
		{"domain/node", []string{module + "domain/event", module + "domain/fault", module + "domain/id"},
			[]string{module + "domain/pool", module + "commands", module + "schema", "math/rand/v2", "net/http", "log/slog"}},
		{"domain/profile/builtin", []string{module + "domain/profile"}, []string{module + "domain/node"}},
		{"domain", nil, []string{module + "domain/node"}},
		{"commands", []string{module + "domain/node", "sync"},
			[]string{module + "projections", module + "adapters/postgres", pgx, pgx + "/pgxpool", "database/sql"}},
		{"projections", []string{module + "domain/event", pgx},
			[]string{module + "projections/metalview", module + "commands", module + "adapters/postgres"}},
		{"projections/doctor", []string{module + "projections", module + "domain/node", pgx + "/pgxpool"},
			[]string{module + "projections/metalview", module + "commands", module + "schema"}},
		{"processmanagers", []string{module + "commands"}, []string{module + "processmanagers/steps", pgx}},
		{"processmanagers/workflow", []string{module + "processmanagers", module + "processmanagers/steps"},
			[]string{module + "processmanagers/provision", module + "projections", module + "adapters/bus", pgx}},
		{"adapters/httpapi", []string{module + "commands", module + "projections/metalview",
			module + "adapters/httpapi/contract", "github.com/go-chi/chi/v5", "github.com/danielgtaylor/huma/v2"},
			[]string{module + "adapters/metrics", module + "cmd/metald", "github.com/prometheus/client_golang/prometheus"}},
		{"adapters/eventstore/postgres", []string{module + "adapters/postgres", pgx},
			[]string{module + "adapters/bus", module + "adapters/eventstore/storetest"}},
		{"adapters/eventstore/esdb", []string{"github.com/EventStore/EventStore-Client-Go/v4/esdb"}, nil},
		{"adapters/eventstore/memory", nil, []string{"github.com/EventStore/EventStore-Client-Go/v4/esdb"}},
		{"adapters/bmc/redfish", []string{"github.com/stmcginnis/gofish/redfish"}, nil},
		{"adapters/bmc/ipmi", []string{module + "adapters/bmc"}, []string{"github.com/stmcginnis/gofish"}},
		{"adapters/postgres", []string{"database/sql", module + "schema"}, []string{module + "adapters/bus", module + "test/pgtest"}},
		{"adapters/bus", []string{"github.com/ThreeDotsLabs/watermill/message"}, []string{"github.com/spf13/cobra"}},
		{"adapters/metrics", []string{"github.com/prometheus/client_golang/prometheus"},
			[]string{"github.com/ThreeDotsLabs/watermill"}},
		{"adapters/authz", []string{"github.com/cedar-policy/cedar-go"}, []string{"github.com/go-chi/chi/v5"}},
		{"adapters/agent", nil, []string{"github.com/cedar-policy/cedar-go", "github.com/danielgtaylor/huma/v2"}},
		{"cmd/metald", []string{module + "adapters/bus", "github.com/ThreeDotsLabs/watermill", "github.com/spf13/cobra", pgx},
			[]string{module + "cmd/metalctl", module + "test", module + "adapters/eventstore/storetest"}},
		{"cmd/metalctl", []string{module + "adapters/httpapi/client", module + "domain/node"},
			[]string{module + "adapters/postgres", module + "commands", "github.com/ThreeDotsLabs/watermill"}},
		{"schema", []string{"embed"}, []string{module + "domain/event"}},
		{"internal/stuff", nil, []string{module + "domain/event"}},
		{"adapters/eventstore/storetest", []string{module + "test/pgtest", "pgregory.net/rapid"}, nil},
		{"test/e2e", []string{module + "cmd/metald", pgx, "github.com/stmcginnis/gofish"}, nil},
	} {
		for _, imported := range test.allowed {
			if issues := importIssues(pkg{ImportPath: module + test.from, Imports: []string{imported}}); len(issues) > 0 {
				t.Errorf("%s may import %s, but: %v", test.from, imported, issues)
			}
		}
		for _, imported := range test.refused {
			if issues := importIssues(pkg{ImportPath: module + test.from, Imports: []string{imported}}); len(issues) == 0 {
				t.Errorf("%s must not import %s, and nothing says so", test.from, imported)
			}
		}
	}
}

// TestPlantedFiles shows the same of the rules for packages and files.
func TestPlantedFiles(t *testing.T) {
	for _, test := range []struct {
		file, source, want string
	}{
		{"domain/node/a.go", "package node\n\nimport \"time\"\n\nvar _ = time.Now()\n", "no clock"},
		{"domain/node/a.go", "package node\n\nimport t \"time\"\n\nvar now = t.Now\n", "no clock"},
		{"domain/node/a.go", "package node\n\nimport \"time\"\n\nvar _ = time.Since(time.Time{})\n", "no clock"},
		{"domain/node/a.go", "package node\n\nimport \"time\"\n\nvar _ = time.Second\n", ""},
		{"domain/node/a.go", "package node\n\nfunc f() { go f() }\n", "no goroutines"},
		{"domain/node/a.go", "package node\n\nimport \"net\"\n\nvar _, _ = net.LookupHost(\"x\")\n", "no network"},
		{"domain/node/a.go", "package node\n\nimport \"net\"\n\nvar _, _ = net.ParseMAC(\"x\")\n", ""},
		{"domain/node/a.go", "package", "expected"},
		{"domain/node/a_test.go", "package node\n\nimport \"time\"\n\nvar _ = time.Now()\n", ""},
		{"commands/a.go", "package commands\n\nimport \"time\"\n\nvar _ = time.Now()\n", ""},
		{"commands/long.go", "package commands\n" + strings.Repeat("\n", longest), "401 lines"},
		{"commands/full.go", "package commands\n" + strings.Repeat("\n", longest-1), ""},
		{"commands/utils.go", "package commands\n", "says nothing"},
		{"commands/node_util.go", "package commands\n", "says nothing"},
		{"commands/helper_test.go", "package commands\n", "says nothing"},
		{"common/a.go", "package common\n", "says nothing"},
		{"adapters/misc/a.go", "package misc\n", "says nothing"},
		{"commands/utility.go", "package commands\n", ""},
		{"commands/database.go", "package commands\n", ""},
	} {
		got := strings.Join(fileIssues(test.file, []byte(test.source)), "; ")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s with %.60q: got %q, want %q", test.file, test.source, got, test.want)
		}
	}
	for _, test := range []struct {
		p    pkg
		want string
	}{
		{pkg{ImportPath: module + "commands", Doc: "Package commands …"}, ""},
		{pkg{ImportPath: module + "commands"}, "no doc comment"},
		{pkg{ImportPath: module + "adapters/helpers", Doc: "Package helpers …"}, "says nothing"},
	} {
		got := strings.Join(packageIssues(test.p), "; ")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.p.ImportPath, got, test.want)
		}
	}
}
