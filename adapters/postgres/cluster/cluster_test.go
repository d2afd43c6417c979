package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/domain/fault"
)

// asChild names the data directory on which the test binary, started again as a child, runs a cluster until it is
// killed.
const asChild = "METAL_CLUSTER_TEST_DATA_DIR"

func TestMain(m *testing.M) {
	if dataDir := os.Getenv(asChild); dataDir != "" {
		if _, err := Start(context.Background(), Options{DataDir: dataDir, FastUnsafe: true}); err != nil {
			panic(err)
		}
		if _, err := os.Stdout.WriteString("started\n"); err != nil {
			panic(err)
		}
		select {}
	}
	goleak.VerifyTestMain(m)
}

// directory is one that the server's account reaches, which t.TempDir's is not.
func directory(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "metal-cluster-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(d, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func execute(t *testing.T, c *Cluster, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.DSN("notes"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// query gives the one text that a statement returns.
func query(t *testing.T, c *Cluster, statement string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.DSN("notes"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if err := conn.QueryRow(t.Context(), statement).Scan(&text); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return text
}

// wantInvalid wants INVALID_CONFIG whose message and remedy hold some words.
func wantInvalid(t *testing.T, err error, words ...string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.InvalidConfig {
		t.Fatalf("error: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(f.Message+" "+f.Remedy, w) {
			t.Errorf("%q, %q do not say %q", f.Message, f.Remedy, w)
		}
	}
}

// A life, with all guards on: made in one go beside the remains of a start that was cut short, used, refused to a
// second instance, killed, stopped, and found again over a stale pid file.
func TestLife(t *testing.T) {
	d := directory(t)
	data := filepath.Join(d, "data")
	if err := os.MkdirAll(filepath.Join(data+".new", "base"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, Options{DataDir: data})
	for range 2 {
		if err := c.CreateDatabase(t.Context(), "notes"); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, c, "CREATE TABLE note AS SELECT 'kept' AS text")
	if tcp := query(t, c, "SELECT current_setting('listen_addresses')"); tcp != "" {
		t.Errorf("it listens on %s", tcp)
	}
	if info, err := os.Stat(c.options.SocketDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", info.Mode(), err)
	}

	_, err := Start(t.Context(), Options{DataDir: data})
	wantInvalid(t, err, data, strconv.Itoa(os.Getpid()), "another data directory")
	if cause := errors.Unwrap(err); cause != nil {
		t.Errorf("it tells a cause that misleads: %v", cause)
	}

	if err := c.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	for _, gone := range []string{data + ".new", c.options.SocketDir, c.pidFile()} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is left", gone)
		}
	}

	stale := strconv.Itoa(os.Getpid()) + "\n" + data + "\n"
	if err := os.WriteFile(c.pidFile(), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	c = start(t, Options{DataDir: data})
	defer stop(t, c)
	if text := query(t, c, "SELECT text FROM note"); text != "kept" {
		t.Errorf("the note is %q", text)
	}
}

// kill -9 of the program takes the server with it, cleanly, and what a killed watchdog leaves is ended by the next
// start.
func TestKilled(t *testing.T) {
	data := filepath.Join(directory(t), "data")
	child := inChild(t, data)
	pid := postmaster(t, data)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if !gone(t.Context(), pid, 30*time.Second) {
		t.Fatalf("process %d outlives the program", pid)
	}

	c := start(t, Options{DataDir: data, FastUnsafe: true})
	if err := c.CreateDatabase(t.Context(), "notes"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Ended():
		t.Error("it has ended while it runs")
	default:
	}
	orphan, watchdog := c.server, c.watchdog
	if err := end(t.Context(), watchdog, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.lock.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, Options{DataDir: data, FastUnsafe: true})
	defer stop(t, second)
	<-orphan.ended
	query(t, second, "SELECT 'it answers'")
}

// inChild starts a cluster in a process of its own, to be killed.
func inChild(t *testing.T, data string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), asChild+"="+data)
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := output.Read(make([]byte, 100)); n == 0 {
		t.Fatalf("the child: %v", err)
	}
	return child
}

// kill -9 of the program and the server together, and a start at once, while what is left of them is still going away.
func TestKilledTogether(t *testing.T) {
	data := filepath.Join(directory(t), "data")
	for range 3 {
		child := inChild(t, data)
		pid := postmaster(t, data)
		if err := errors.Join(child.Process.Kill(), syscall.Kill(pid, syscall.SIGKILL)); err != nil {
			t.Fatal(err)
		}
		c := start(t, Options{DataDir: data, FastUnsafe: true}) // the child is a zombie of ours
		if err := c.CreateDatabase(t.Context(), "notes"); err != nil {
			t.Error(err)
		}
		stop(t, c)
		_ = child.Wait() // it was killed
	}
}

// A lock of the socket that names a program that runs, as after a restart of the machine, is no hindrance.
func TestStaleSocketLock(t *testing.T) {
	data := filepath.Join(directory(t), "data")
	c := start(t, Options{DataDir: data, FastUnsafe: true})
	lock := c.options.SocketDir + socketName + ".lock"
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	if err := os.Mkdir(c.options.SocketDir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(lock, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	stop(t, start(t, Options{DataDir: data, FastUnsafe: true}))
}

func postmaster(t *testing.T, data string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A socket's address holds 107 bytes; a data directory may be deeper, and have odd characters.
func TestLongPath(t *testing.T) {
	data := filepath.Join(directory(t), strings.Repeat("deep/", 25), `it's "here", é`)
	c := start(t, Options{DataDir: data, FastUnsafe: true})
	defer stop(t, c)
	if err := c.CreateDatabase(t.Context(), "notes"); err != nil {
		t.Fatal(err)
	}
	if at := query(t, c, "SELECT current_setting('data_directory')"); at != data {
		t.Errorf("the data is in %s", at)
	}
}

// A setting the server refuses is told in the server's words.
func TestServerRefusesToStart(t *testing.T) {
	_, err := Start(t.Context(), Options{
		DataDir: filepath.Join(directory(t), "data"), FastUnsafe: true, Settings: map[string]string{"no_such_setting": "1"},
	})
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error: %v", err)
	}
}

func TestWrongDirectories(t *testing.T) {
	d := directory(t)
	full, older := filepath.Join(d, "full"), filepath.Join(d, "older")
	for path, text := range map[string]string{
		filepath.Join(full, "letter"): "dear", filepath.Join(older, "PG_VERSION"): "9\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(t.Context(), Options{DataDir: full})
	wantInvalid(t, err, full, "not a PostgreSQL data directory")
	_, err = Start(t.Context(), Options{DataDir: older})
	wantInvalid(t, err, "made by PostgreSQL 9", "pg_upgrade")
	_, err = Start(t.Context(), Options{DataDir: filepath.Join(full, "letter", "data")})
	wantInvalid(t, err, "cannot be made")
}

func TestDirectoryOutOfReach(t *testing.T) {
	closed := filepath.Join(directory(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := account{uid: 64_123, gid: 64_123, switched: true}
	err := stranger.ownDirectory(filepath.Join(closed, "state"))
	wantInvalid(t, err, "may not pass through "+closed, "chmod o+x "+closed)
}

func TestNoPostgreSQL(t *testing.T) {
	known := places
	places = []string{filepath.Join(t.TempDir(), "*")}
	t.Cleanup(func() { places = known })
	t.Setenv("PATH", t.TempDir())
	_, err := findBinaries(0)
	wantInvalid(t, err, "apt-get install postgresql", "dnf install postgresql-server", "brew install postgresql@")
}
