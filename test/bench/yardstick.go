package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// yardstickTable and yardstickScript are the yardstick: single rows of an event's size into a table with a serial
// key.
const (
	yardstickTable  = "CREATE TABLE yardstick (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL)"
	yardstickScript = "INSERT INTO yardstick (payload) VALUES ('%s');\n"
)

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// pgbench gives the inserts per second of so many clients.
func (b *bench) pgbench(ctx context.Context, clients int) (perSecond float64, err error) {
	const database = "yardstick"
	if err := b.cluster.CreateDatabase(ctx, database); err != nil {
		return 0, err
	}
	script := filepath.Join(b.dir, "insert.sql")
	text := fmt.Sprintf(yardstickScript, strings.Repeat("x", 400))
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		return 0, err
	}
	dsn := b.cluster.DSN(database)
	table := exec.CommandContext(ctx, filepath.Join(b.cluster.BinDir(), "psql"), "-qX", "-v", "ON_ERROR_STOP=1",
		"-c", "DROP TABLE IF EXISTS yardstick", "-c", yardstickTable, dsn)
	if output, err := table.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("psql: %w: %s", err, output)
	}
	for seconds := int(b.period.Seconds()); ; seconds *= 2 {
		perSecond, err = b.inserts(ctx, script, dsn, clients, seconds)
		if err == nil || seconds > 60 || !errors.Is(err, errNoTPS) {
			return perSecond, err
		}
	}
}

// errNoTPS says that pgbench came to nothing in its time, which happens where the machine does much else.
var errNoTPS = errors.New("pgbench prints no tps")

// inserts runs pgbench.
func (b *bench) inserts(ctx context.Context, script, dsn string, clients, seconds int) (perSecond float64, err error) {
	command := exec.CommandContext(ctx, filepath.Join(b.cluster.BinDir(), "pgbench"), "-n", "-f", script,
		"-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)), "-T", strconv.Itoa(seconds), dsn)
	output, err := command.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, output)
	}
	found := tps.FindSubmatch(output)
	if found == nil {
		return 0, fmt.Errorf("%w: %s", errNoTPS, output)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

func median[T int | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
