package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is what precedes the paths of our own packages.
const module = "github.com/better-compute/metal/"

// pkg is what the rules look at, as go list tells it. Imports are those of production code.
type pkg struct {
	ImportPath, Doc string
	Imports         []string
}

// direction says which of our packages the packages under from may import: those under to, and themselves. The first
// row that fits counts.
type direction struct {
	from string
	to   []string
}

var directions = []direction{
	{"domain/event", nil},
	{"domain/fault", nil},
	{"domain/label", nil},
	{"domain/id", nil},
	{"domain/*", []string{"domain/event", "domain/fault", "domain/id", "domain/label"}}, // ids cross aggregates, states do not
	{"domain", nil},
	{"commands", []string{"domain"}},
	{"projections/*", []string{"domain", "=projections"}}, // never each other
	{"projections", []string{"domain"}},
	{"processmanagers/*", []string{"domain", "commands", "=processmanagers", "processmanagers/steps"}},
	{"processmanagers", []string{"domain", "commands"}},
	// Siblings do not know each other, but for the pool that everything on PostgreSQL shares.
	{"adapters/eventstore", []string{"domain", "commands", "projections", "processmanagers", "schema", "adapters/postgres"}},
	// The agent joins what it drives; a simulated site stands in for machines and lets them run the real agent.
	{"adapters/agentapi", []string{"domain", "commands", "projections", "processmanagers", "schema", "adapters/pki", "adapters/ratelimit"}},
	{"adapters/agent", []string{"domain", "adapters/agentapi/protocol", "adapters/bmc", "adapters/disk", "adapters/netboot", "adapters/statefile"}},
	{"adapters/netboot", []string{"domain", "adapters/statefile"}},
	// A config drive and a medium to boot from are the same kind of filesystem.
	{"adapters/disk", []string{"domain", "adapters/iso9660"}},
	{"adapters/bootimage", []string{"domain", "adapters/iso9660"}},
	{"adapters/sim", []string{"domain", "adapters/agent", "adapters/agentapi/protocol", "adapters/bmc", "adapters/disk", "adapters/netboot"}},
	{"adapters/httpapi", []string{"domain", "commands", "projections", "processmanagers", "schema", "adapters/ratelimit"}},
	{"adapters/*", []string{"domain", "commands", "projections", "processmanagers", "schema"}},
	{"cmd/program", []string{"domain/fault"}},
	{"cmd/metalctl", []string{"domain", "schema", "adapters/httpapi/client", "adapters/httpapi/contract", "cmd/program"}},
	{"cmd/*", []string{"cmd/program", "domain", "commands", "projections", "processmanagers", "adapters", "schema"}},
	{"schema", nil},
}

// fence says where a library may be used. homes are as in direction.
type fence struct {
	library string
	homes   []string
}

var fences = []fence{
	{"github.com/stmcginnis/gofish", []string{"adapters/bmc/redfish"}},
	{"github.com/EventStore", []string{"adapters/eventstore/esdb"}},
	{"github.com/ThreeDotsLabs/watermill", []string{"adapters/bus", "cmd/metald"}},
	{"github.com/prometheus", []string{"adapters/metrics"}},
	{"github.com/cedar-policy", []string{"adapters/authz"}},
	{"github.com/danielgtaylor/huma", []string{"adapters/httpapi", "cmd"}},
	{"github.com/go-chi/chi", []string{"adapters/httpapi", "adapters/agentapi", "cmd"}},
	{"github.com/spf13", []string{"cmd"}},
	{"github.com/jackc/pgx", []string{"projections", "adapters", "cmd"}},
	{"database/sql", []string{"adapters/postgres"}},
}

// domainLibraries is all that the domain may use beside the standard library.
var domainLibraries = []string{"github.com/google/uuid", "go.jetify.com/typeid"}

// impure is the part of the standard library that does I/O, draws randomness or shares memory between goroutines.
var impure = []string{
	"crypto/rand", "database/sql", "log", "math/rand", "net/http", "net/rpc", "net/smtp", "os", "sync", "syscall",
}

// isTest tells whether a package exists for tests only: under test/, or a conformance suite such as storetest.
func isTest(p string) bool { return under(p, "test") || strings.HasSuffix(p, "test") }

// under tells whether p is what the pattern names: =a is a itself, a is a and what is below, a/* is what is below.
func under(p, pattern string) bool {
	if exact, ok := strings.CutPrefix(pattern, "="); ok {
		return p == exact
	}
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(p, parent+"/")
	}
	return p == pattern || strings.HasPrefix(p, pattern+"/")
}

func anyOf(p string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return under(p, pattern) })
}

// family is the part of the tree within which packages know each other: adapters/httpapi, domain/node.
func family(p string) string {
	parts := strings.SplitN(p, "/", 3)
	return strings.Join(parts[:min(len(parts), 2)], "/")
}

// importIssues tells what is wrong with what one package imports.
func importIssues(p pkg) (issues []string) {
	from := strings.TrimPrefix(p.ImportPath, module)
	if isTest(from) {
		return nil
	}
	for _, imported := range p.Imports {
		to, ours := strings.CutPrefix(imported, module)
		switch {
		case ours && isTest(to):
			issues = append(issues, fmt.Sprintf("%s imports %s, which is for tests", from, to))
		case ours && !mayImport(from, to):
			issues = append(issues, fmt.Sprintf("%s imports %s: not a direction of the house", from, to))
		case !ours:
			issues = append(issues, libraryIssues(from, imported)...)
		}
	}
	return issues
}

func mayImport(from, to string) bool {
	for _, row := range directions {
		if under(from, row.from) {
			return anyOf(to, row.to) || (family(from) == family(to) && strings.Contains(from, "/"))
		}
	}
	return false // a top-level folder that the table does not know
}

func libraryIssues(from, library string) (issues []string) {
	for _, f := range fences {
		if under(library, f.library) && !anyOf(from, f.homes) {
			issues = append(issues, fmt.Sprintf("%s imports %s: its home is %v", from, library, f.homes))
		}
	}
	if under(from, "domain") {
		host, _, _ := strings.Cut(library, "/")
		if strings.Contains(host, ".") && !anyOf(library, domainLibraries) {
			issues = append(issues, fmt.Sprintf("%s imports %s: the domain knows %v", from, library, domainLibraries))
		}
		if anyOf(library, impure) {
			issues = append(issues, fmt.Sprintf("%s imports %s: the domain is pure", from, library))
		}
	}
	return issues
}

// vague are names that say nothing of what is inside.
var vague = regexp.MustCompile(`(^|[/_])(utils?|common|helpers?|misc|shared|base)([/_.]|$)`)

func packageIssues(p pkg) (issues []string) {
	name := strings.TrimPrefix(p.ImportPath, module)
	if p.Doc == "" {
		issues = append(issues, name+" has no doc comment")
	}
	if vague.MatchString(name) {
		issues = append(issues, name+": the name says nothing")
	}
	return issues
}

// longest is how many lines a file of production code may have.
const longest = 400

// fileIssues tells what is wrong with one Go file; file is its path from the top of the module.
func fileIssues(file string, source []byte) (issues []string) {
	if vague.MatchString(file) {
		issues = append(issues, file+": the name says nothing")
	}
	if strings.HasSuffix(file, "_test.go") {
		return issues
	}
	if n := strings.Count(string(source), "\n"); n > longest {
		issues = append(issues, fmt.Sprintf("%s has %d lines; the most is %d", file, n, longest))
	}
	if under(path.Dir(file), "domain") {
		issues = append(issues, impurities(file, source)...)
	}
	return issues
}

// refusals are the functions that the domain does not use of packages it may import, with the reason.
var refusals = map[string]struct {
	functions *regexp.Regexp
	reason    string
}{
	"time": {regexp.MustCompile(`^(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker)$`), "no clock"},
	"net":  {regexp.MustCompile(`^(Dial|Listen|Lookup|Resolve|Interface|File|DefaultResolver)`), "no network"},
}

// impurities finds clocks, sockets and goroutines.
func impurities(file string, source []byte) (issues []string) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, source, 0)
	if err != nil {
		return []string{err.Error()}
	}
	imported := importedAs(tree)
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			issues = append(issues, fmt.Sprintf("%s: the domain starts no goroutines", files.Position(n.Pos())))
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			refused, ok := refusals[imported[x.Name]]
			if ok && refused.functions.MatchString(n.Sel.Name) {
				issues = append(issues, fmt.Sprintf("%s: %s.%s: the domain has %s",
					files.Position(n.Pos()), x.Name, n.Sel.Name, refused.reason))
			}
		}
		return true
	})
	return issues
}

// importedAs gives the packages that a file imports by the names it knows them under.
func importedAs(tree *ast.File) map[string]string {
	byName := map[string]string{}
	for _, i := range tree.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue // the parser took it, so it is well-formed
		}
		name := path.Base(imported)
		if i.Name != nil {
			name = i.Name.Name
		}
		byName[name] = imported
	}
	return byName
}
