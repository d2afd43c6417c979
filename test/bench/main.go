// Command bench measures the figures that are promised, each beside a yardstick measured in the same run: absolute
// figures wander with the machine, ratios hold.
//
//	go run ./test/bench [-only TEXT] [-seconds N] [-rounds N]
//
// It starts a private PostgreSQL with every guard on, in a temporary directory. Further figures are further files of
// this package, each one more row of the table figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/adapters/postgres/cluster"
)

// figure is one promise and how it is measured.
type figure struct {
	name    string
	promise string // in words, as printed
	measure func(context.Context, *bench) (result, error)
}

// result is what was measured.
type result struct {
	text string // for people
	kept bool   // whether the promise holds
}

// figures is the list, in the order printed.
var figures = []figure{
	{"appends, 64 callers", "≥ 1.5 × pgbench with 64 clients", appends(64, 1.5)},
	{"appends, 1 caller", "≥ 0.6 × pgbench with 1 client", appends(1, 0.6)},
	{"append to live subscriber", "p99 ≤ 5 ms", subscriber},
	{"verb over HTTP, 64 callers", "≥ 0.25 × pgbench with 64 clients, p99 ≤ 50 ms", api(64, 0.25, 50*time.Millisecond, verb)},
	// 8,000/s and 1,000/s where pgbench with 64 clients reaches 14,000/s.
	{"GET one node, 16 callers", "≥ 0.57 × pgbench with 64 clients, p99 ≤ 10 ms", api(16, 0.57, 10*time.Millisecond, get)},
	{"GET a list of 100, 16 callers", "≥ 0.07 × pgbench with 64 clients", api(16, 0.07, time.Second, list)},
	// 1,000 lives a minute where pgbench with 64 clients reaches 14,000/s.
	{"machines' lives", "≥ 0.07 lives/min × pgbench with 64 clients, ≤ 0.1 CPU-s of metald and PostgreSQL per life", lives},
	{"fleet at rest, 10,000 nodes", "≤ 100 CPU-ms/min of metald and PostgreSQL, no transaction per node, metald ≤ 200 MiB", rest},
	{"kill -9 of one of two replicas", "≤ 5 s until what it held goes on; every life comes to its end", takeover},
}

// bench is what measurements share.
type bench struct {
	cluster *cluster.Cluster
	dir     string
	period  time.Duration // of one measurement
	rounds  int           // how often it is taken
	made    int           // databases, so far
	started int           // programs, so far
	built   bool          // the programs
	lives   int           // machines of the figure of lives
	explain bool          // print what the figures of lives and of rest are made of
}

func main() {
	only := flag.String("only", "", "measure only figures whose name contains `TEXT`")
	seconds := flag.Int("seconds", 4, "seconds of one measurement")
	rounds := flag.Int("rounds", 3, "how often each is taken; the median counts")
	lives := flag.Int("lives", 200, "machines that go through a life")
	explain := flag.Bool("explain", false, "also print, on standard error, what the figures of lives and of a fleet at rest are made of")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	b := &bench{
		period: time.Duration(*seconds) * time.Second, rounds: max(1, *rounds), lives: max(1, *lives), explain: *explain,
	}
	kept, err := b.run(ctx, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if !kept {
		os.Exit(3)
	}
}

// run measures and prints; it tells whether every promise was kept.
func (b *bench) run(ctx context.Context, only string) (kept bool, err error) {
	if b.dir, err = os.MkdirTemp("", "metal-bench-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := os.Chmod(b.dir, 0o755); err != nil { // the server's account passes through
		return false, err
	}
	b.cluster, err = cluster.Start(ctx, cluster.Options{DataDir: filepath.Join(b.dir, "data"), Settings: b.settings()})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()

	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "FIGURE\tPROMISED\tMEASURED\tKEPT")
	kept = true
	for _, f := range figures {
		if !strings.Contains(f.name, only) {
			continue
		}
		r, err := f.measure(ctx, b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", f.name, err)
		}
		answer := "yes"
		if !r.kept {
			answer, kept = "NO", false
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", f.name, f.promise, r.text, answer)
	}
	return kept, out.Flush()
}

// settings make the server count statements where they are to be printed: that costs a little.
func (b *bench) settings() map[string]string {
	if !b.explain {
		return nil
	}
	return map[string]string{"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all",
		"pg_stat_statements.track_planning": "on"}
}

// database is a fresh, migrated one.
func (b *bench) database(ctx context.Context) (*pgxpool.Pool, string, error) {
	b.made++
	name := fmt.Sprintf("bench_%d", b.made)
	if err := b.cluster.CreateDatabase(ctx, name); err != nil {
		return nil, "", err
	}
	dsn := b.cluster.DSN(name)
	pool, err := postgres.Open(ctx, dsn, postgres.Options{})
	if err != nil {
		return nil, "", err
	}
	if err = postgres.Migrate(ctx, pool); err == nil && b.explain {
		_, err = pool.Exec(ctx, "CREATE EXTENSION pg_stat_statements")
	}
	if err != nil {
		pool.Close()
		return nil, "", err
	}
	return pool, dsn, nil
}
