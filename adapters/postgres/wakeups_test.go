package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/test/pgtest"
)

const patience = time.Minute

// watcher wakes a key per node stream, and has it rest once the node is cordoned.
func watcher(reconcile func(context.Context, string) (time.Duration, error)) processmanagers.Manager {
	return processmanagers.Manager{
		Name: "watcher",
		Wakes: func(r event.Recorded) (string, bool) {
			_, cordoned := r.Event.(node.Cordoned)
			return r.Stream.ID(), r.Stream.Category() == node.Category && !cordoned
		},
		Rests: func(r event.Recorded) (string, bool) {
			_, cordoned := r.Event.(node.Cordoned)
			return r.Stream.ID(), cordoned
		},
		Reconcile: reconcile,
	}
}

func idle(context.Context, string) (time.Duration, error) { return 0, nil }

func newLog(t *testing.T) *memory.Store {
	t.Helper()
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	return memory.New(registry)
}

func nodeID(n int) id.Node { return id.Of[id.Node](uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n))) }

func tell(t *testing.T, log *memory.Store, n int, expect event.Version, e event.Event) {
	t.Helper()
	if _, err := log.Append(t.Context(), node.StreamOf(nodeID(n)), expect, event.Meta{}, e); err != nil {
		t.Fatal(err)
	}
}

// as asks for every key that is due.
func as(holder string) processmanagers.LeaseRequest {
	return processmanagers.LeaseRequest{Managers: []string{"watcher"}, Holder: holder, TTL: time.Minute, Limit: 100}
}

func lease(t *testing.T, w *postgres.Wakeups, r processmanagers.LeaseRequest) []processmanagers.Lease {
	t.Helper()
	leases, _, err := w.Lease(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

func settle(t *testing.T, w *postgres.Wakeups, holder string, again time.Duration, leases ...processmanagers.Lease) {
	t.Helper()
	var settled []processmanagers.Settled
	for _, l := range leases {
		settled = append(settled, processmanagers.Settled{Lease: l, Again: again})
	}
	if err := w.Settle(t.Context(), holder, settled); err != nil {
		t.Fatal(err)
	}
}

func keysOf(leases []processmanagers.Lease) []string {
	keys := []string{}
	for _, l := range leases {
		keys = append(keys, l.Key)
	}
	slices.Sort(keys)
	return keys
}

func rowsLeft(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM wakeups`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAWakeupDuringAPassIsNotLost(t *testing.T) {
	pool := pgtest.New(t)
	w := postgres.NewWakeups(pool, newLog(t))
	for name, again := range map[string]time.Duration{"done": 0, "again in an hour": time.Hour} {
		if err := w.Wake(t.Context(), "watcher", "a", "a", "b"); err != nil {
			t.Fatal(err)
		}
		first := lease(t, w, as("one"))
		if diff := cmp.Diff([]string{"a", "b"}, keysOf(first)); diff != "" {
			t.Fatal(diff)
		}
		if again := lease(t, w, as("two")); len(again) > 0 {
			t.Errorf("%s: %v is leased twice", name, keysOf(again))
		}
		if err := w.Wake(t.Context(), "watcher", "a"); err != nil {
			t.Fatal(err)
		}
		if again := lease(t, w, as("two")); len(again) > 0 {
			t.Errorf("%s: %v is leased twice after it was woken", name, keysOf(again))
		}
		settle(t, w, "one", again, first...)
		dirty := lease(t, w, as("two"))
		if diff := cmp.Diff([]string{"a"}, keysOf(dirty)); diff != "" {
			t.Errorf("%s: due after the pass: %s", name, diff)
		}
		settle(t, w, "one", 0, dirty...) // not the holder
		if n := rowsLeft(t, pool); n != map[time.Duration]int{0: 1, time.Hour: 2}[again] {
			t.Errorf("%s: %d rows are left", name, n)
		}
		settle(t, w, "two", 0, dirty...)
		exec(t, pool, `DELETE FROM wakeups`)
	}
}

func TestALeaseThatRanOutIsTakenOver(t *testing.T) {
	pool := pgtest.New(t)
	w := postgres.NewWakeups(pool, newLog(t))
	if err := w.Wake(t.Context(), "watcher", "a"); err != nil {
		t.Fatal(err)
	}
	old := lease(t, w, as("dead"))
	taken, next, err := w.Lease(t.Context(), as("alive"))
	if err != nil || len(taken) > 0 || next > as("dead").TTL {
		t.Errorf("leased %v, the next look is in %v (%v), want at most %v", taken, next, err, as("dead").TTL)
	}
	if held, err := w.Renew(t.Context(), "alive", time.Hour, old); err != nil || len(held) != 0 {
		t.Errorf("another holder renewed %v, %v", held, err)
	}
	held, err := w.Renew(t.Context(), "dead", 300*time.Millisecond, old) // and never again
	if err != nil || len(held) != 1 {
		t.Errorf("renewed %v, %v", held, err)
	}
	for end := time.Now().Add(patience); len(taken) == 0 && time.Now().Before(end); taken = lease(t, w, as("alive")) {
		<-time.After(5 * time.Millisecond)
	}
	if len(taken) != 1 || taken[0].Number <= old[0].Number {
		t.Fatalf("taken over: %v after %v", taken, old)
	}
	if held, err = w.Renew(t.Context(), "dead", time.Hour, old); err != nil || len(held) != 0 {
		t.Errorf("the dead holder renewed %v, %v", held, err)
	}
	settle(t, w, "dead", 0, old...)
	if n := rowsLeft(t, pool); n != 1 {
		t.Error("the dead holder settled a lease that is another's")
	}
	settle(t, w, "alive", 0, taken...)
	if n := rowsLeft(t, pool); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestFailuresAreKeptUntilAPassSucceeds(t *testing.T) {
	pool := pgtest.New(t)
	w := postgres.NewWakeups(pool, newLog(t))
	if err := w.Wake(t.Context(), "watcher", "a"); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		l := lease(t, w, as("one"))
		if len(l) != 1 || l[0].Attempts != attempt-1 {
			t.Fatalf("attempt %d: leased %+v", attempt, l)
		}
		l[0].Attempts = attempt
		err := w.Settle(t.Context(), "one", []processmanagers.Settled{{Lease: l[0], Again: time.Hour, Error: "no route"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Wake(t.Context(), "watcher", "a"); err != nil { // an event is worth another try at once
			t.Fatal(err)
		}
	}
	const failing = `SELECT FROM wakeups WHERE key = 'a' AND attempts = 3 AND error = 'no route' AND failing_since <= now()`
	if found := exec(t, pool, failing); found != 1 {
		t.Fatalf("%d keys fail, want 1", found)
	}
	l := lease(t, w, as("one"))
	l[0].Attempts = 0
	settle(t, w, "one", time.Hour, l...)
	if found := exec(t, pool, `SELECT FROM wakeups WHERE attempts > 0 OR error IS NOT NULL OR failing_since IS NOT NULL`); found != 0 {
		t.Errorf("%d keys still fail", found)
	}
}

// Several replicas follow one log and lose nothing; the table rebuilt from the log has the keys that are due.
func TestFollowersAndRebuild(t *testing.T) {
	pool, log := pgtest.New(t), newLog(t)
	replicas := []*postgres.Wakeups{
		postgres.NewWakeups(pool, log, watcher(idle)), postgres.NewWakeups(pool, log, watcher(idle)),
	}
	want := []string{}
	for n := range 50 {
		tell(t, log, n, 0, node.PowerObserved{Power: node.PowerOn})
		want = append(want, nodeID(n).String())
	}
	slices.Sort(want)
	for _, w := range replicas {
		if err := w.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := lease(t, replicas[0], as("one"))
	if diff := cmp.Diff(want, keysOf(first)); diff != "" {
		t.Fatal(diff)
	}
	settle(t, replicas[0], "one", 0, first...)
	for n := range 50 {
		tell(t, log, n, 1, node.PowerObserved{Power: node.PowerOff})
		if n%2 == 0 {
			tell(t, log, n, 2, node.Cordoned{})
		}
		if err := replicas[n%2].CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	second := lease(t, replicas[1], as("two"))
	if diff := cmp.Diff(want, keysOf(second)); diff != "" {
		t.Fatal(diff)
	}
	due := []string{}
	for n := 1; n < 50; n += 2 {
		due = append(due, nodeID(n).String())
	}
	slices.Sort(due)
	for _, l := range second { // what has come to rest is settled, the rest looked at again
		again := time.Duration(0)
		if slices.Contains(due, l.Key) {
			again = time.Hour
		}
		settle(t, replicas[1], "two", again, l)
	}
	exec(t, pool, `DELETE FROM wakeups WHERE key = $1`, due[0])
	exec(t, pool, `INSERT INTO wakeups (manager, key) VALUES ('watcher', 'stray')`)
	if err := replicas[0].Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(due, keysOf(lease(t, replicas[0], as("three")))); diff != "" {
		t.Error(diff)
	}
}

// A crash of the database may take back what was committed without waiting for the disk: rows and checkpoint alike.
func TestACheckpointThatWentBackIsNoticed(t *testing.T) {
	pool, log := pgtest.New(t), newLog(t)
	w := postgres.NewWakeups(pool, log, watcher(idle))
	tell(t, log, 1, 0, node.PowerObserved{Power: node.PowerOn})
	if err := w.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell(t, log, 2, 0, node.PowerObserved{Power: node.PowerOn})
	if err := w.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE checkpoints SET position = 1 WHERE projection = 'wakeups'`)
	exec(t, pool, `DELETE FROM wakeups`)
	if leases := lease(t, w, as("one")); len(leases) != 0 {
		t.Fatal("nothing is left to lease")
	}
	if at := w.Position(); at >= 2 {
		t.Fatalf("the follower still believes to be at %v", at)
	}
	if err := w.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{nodeID(2).String()}, keysOf(lease(t, w, as("one")))); diff != "" {
		t.Error(diff)
	}
}

// Eight processes work on few keys that are woken all the time: no key is worked on twice at once, and every wake-up is
// followed by a pass that began after it.
func TestWorkersShareKeys(t *testing.T) {
	pool := pgtest.New(t)
	const keys, wakes = 5, 60
	var inUse [keys]atomic.Bool
	var wanted, seen [keys]atomic.Int64
	reconcile := func(ctx context.Context, key string) (time.Duration, error) {
		n := int(key[0] - 'a')
		if !inUse[n].CompareAndSwap(false, true) {
			t.Errorf("key %s is worked on twice at once", key)
		}
		defer inUse[n].Store(false)
		now := wanted[n].Load()
		select {
		case <-time.After(time.Duration(n) * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		seen[n].Store(max(seen[n].Load(), now))
		if now%7 == 3 {
			return time.Millisecond, errors.New("it does not work each time")
		}
		return 0, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	tables := make([]*postgres.Wakeups, 8)
	for i := range tables {
		tables[i] = postgres.NewWakeups(pool, newLog(t), watcher(reconcile))
		workers, err := processmanagers.NewWorkers(tables[i], processmanagers.Options{
			Logger: slog.New(slog.DiscardHandler), Concurrency: 4, FirstRetry: time.Millisecond, LastRetry: 5 * time.Millisecond,
			TTL: time.Minute, // however slow the computer is, no lease runs out
		}, watcher(reconcile))
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := workers.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range wakes * keys {
		n := i % keys
		wanted[n].Add(1)
		if err := tables[i%len(tables)].Wake(t.Context(), "watcher", string(rune('a'+n))); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); rowsLeft(t, pool) > 0; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("keys are still due")
		}
	}
	stop()
	running.Wait()
	for n := range keys {
		if seen[n].Load() != wakes {
			t.Errorf("key %d was last seen at wake-up %d of %d", n, seen[n].Load(), wakes)
		}
	}
}

// A process that dies holding keys is followed by another as soon as its lease is over, without anybody telling it: that is after
// three seconds, as workers lease. How soon they look is their own test's.
func TestTakeoverOfWhatADeadProcessHeld(t *testing.T) {
	pool := pgtest.New(t)
	table := postgres.NewWakeups(pool, newLog(t))
	if err := table.Wake(t.Context(), "watcher", "a"); err != nil {
		t.Fatal(err)
	}
	dead := as("dead")
	dead.TTL = 3 * time.Second // as workers have it
	if leases := lease(t, table, dead); len(leases) != 1 {
		t.Fatal("nothing to lease")
	}
	if _, next, err := table.Lease(t.Context(), as("alive")); err != nil || next <= 0 || next > dead.TTL {
		t.Errorf("the next look is in %v, %v; the lease is over in %v", next, err, dead.TTL)
	}
	var until, over time.Time
	if err := pool.QueryRow(t.Context(), `SELECT leased_until FROM wakeups`).Scan(&until); err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	workers, err := processmanagers.NewWorkers(table, processmanagers.Options{Logger: slog.New(slog.DiscardHandler)},
		watcher(func(ctx context.Context, _ string) (time.Duration, error) {
			taken <- pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&over)
			return 0, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx) }()
	select {
	case err := <-taken:
		if err != nil || over.Before(until) {
			t.Errorf("taken over at %v, leased until %v, %v", over, until, err)
		}
	case <-time.After(patience):
		t.Error("nobody took over")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestClockIsTheDatabases(t *testing.T) {
	pool := pgtest.New(t)
	clock, err := postgres.NewClock(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	var theirs time.Time
	before := clock.Now()
	if err := pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
		t.Fatal(err)
	}
	const off = time.Second
	if after := clock.Now(); theirs.Before(before.Add(-off)) || theirs.After(after.Add(off)) {
		t.Errorf("the database says %v between %v and %v", theirs, before, after)
	}
}
