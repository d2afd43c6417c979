package cluster

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// binaries is a directory that holds initdb, pg_ctl and postgres of one version.
type binaries string

func (b binaries) path(program string) string { return filepath.Join(string(b), program) }

// oldest is the oldest major version that is known to work.
const oldest = 15

// places are where distributions put the binaries, outside the PATH: Debian and Ubuntu; PostgreSQL's own packages for
// Fedora and RHEL; Homebrew on Apple silicon and on Intel.
var places = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
}

// howToInstall is the remedy where there is no PostgreSQL.
const howToInstall = "install PostgreSQL 15 or newer: " +
	"Debian and Ubuntu: apt-get install postgresql; " +
	"Fedora: dnf install postgresql-server; " +
	"macOS: brew install postgresql@17"

// findBinaries finds the newest installed version, or that of a given major version.
func findBinaries(major int) (binaries, error) {
	found := map[int]binaries{}
	for _, directory := range candidates() {
		b := binaries(directory)
		if v := b.major(); v >= oldest && found[v] == "" {
			found[v] = b
		}
	}
	newest := 0
	for v := range found {
		newest = max(newest, v)
	}
	switch {
	case newest == 0:
		return "", fault.New(fault.InvalidConfig, "no PostgreSQL %d or newer is installed (initdb, pg_ctl and postgres were "+
			"looked for on the PATH and in %s)", oldest, strings.Join(places, ", ")).WithRemedy(howToInstall)
	case major == 0:
		return found[newest], nil
	case found[major] == "":
		return "", fault.New(fault.InvalidConfig,
			"the data directory was made by PostgreSQL %d; installed is %d", major, newest).
			WithRemedy("install PostgreSQL " + strconv.Itoa(major) +
				", or bring the directory to the new version with pg_upgrade")
	}
	return found[major], nil
}

// candidates lists the directory of initdb on the PATH, behind links, and then the known places.
func candidates() []string {
	var all []string
	if program, err := exec.LookPath("initdb"); err == nil {
		if target, err := filepath.EvalSymlinks(program); err == nil {
			program = target
		}
		all = append(all, filepath.Dir(program))
	}
	for _, pattern := range places {
		matches, err := filepath.Glob(pattern)
		if err == nil { // the patterns are constants and well-formed
			all = append(all, matches...)
		}
	}
	return all
}

// major asks the server binary for its version; 0 where a program is missing or does not run.
func (b binaries) major() int {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(b.path(program)); err != nil {
			return 0
		}
	}
	output, err := exec.Command(b.path("postgres"), "--version").Output() // postgres (PostgreSQL) 15.18 (Debian …)
	words := strings.Fields(string(output))
	if err != nil || len(words) < 3 {
		return 0
	}
	return leadingNumber(words[2])
}

func leadingNumber(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		s = s[:end]
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// dataVersion is the major version that made a data directory; 0 where there is none yet.
func dataVersion(directory string) (int, error) {
	text, err := os.ReadFile(filepath.Join(directory, "PG_VERSION"))
	if err == nil {
		return leadingNumber(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fault.Wrap(err, fault.InvalidConfig, "the data directory cannot be read: %v", err)
	}
	switch entries, err := os.ReadDir(directory); {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fault.Wrap(err, fault.InvalidConfig, "the data directory cannot be read: %v", err)
	case len(entries) > 0:
		return 0, fault.New(fault.InvalidConfig, "%s is not empty and not a PostgreSQL data directory", directory).
			WithRemedy("name a directory that does not exist yet")
	}
	return 0, nil
}
