package projections_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/projectiontest"
)

// shape describes everything about a table that a migration may count on.
func (s setup) shape(t *testing.T) []string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), `
		SELECT indexdef FROM pg_indexes WHERE tablename = 'tally'
		UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'tally'::regclass
		UNION ALL SELECT attname || ' ' || atttypid::regtype || ' ' || attnotnull FROM pg_attribute
			WHERE attrelid = 'tally'::regclass AND attnum > 0
		UNION ALL SELECT unnest(reloptions) FROM pg_class WHERE oid = 'tally'::regclass ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func (s setup) schemas(t *testing.T) (n int) {
	t.Helper()
	const sql = `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'rebuild%' OR nspname LIKE 'verify%'`
	if err := s.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRebuildLeavesTheTablesAsTheyWere(t *testing.T) {
	s, y := prepare(t), &tally{}
	s.append(t, "tally-a", counted{1}, counted{2})
	r := s.runner(t, y)
	catchUp(t, r)
	before := s.shape(t)
	s.exec(t, `UPDATE tally SET sum = 99`)
	last := s.append(t, "tally-b", counted{4}, ignored{})
	var told projections.Progress
	if err := r.Rebuild(t.Context(), "tally", func(p projections.Progress) { told = p }); err != nil {
		t.Fatal(err)
	}
	if after := s.shape(t); !slices.Equal(before, after) {
		t.Errorf("shape\n%q, was\n%q", after, before)
	}
	if sum, left := s.sum(t), s.schemas(t); sum != 7 || left != 0 {
		t.Errorf("sum %d, want 7; %d side schemas left", sum, left)
	}
	if told.Events != 3 || told.Position != last || told.Projection != "tally" {
		t.Errorf("progress %+v", told)
	}
	catchUp(t, r)
	if r.Position("tally") != last || s.sum(t) != 7 {
		t.Errorf("after it: sum %d at %s", s.sum(t), r.Position("tally"))
	}
}

func TestARaisedVersionRebuildsAndALoweredOneIsRefused(t *testing.T) {
	s := prepare(t)
	s.append(t, "tally-a", counted{1}, counted{2})
	old := s.runner(t, &tally{})
	catchUp(t, old)
	raised := s.runner(t, &tally{version: 2, factor: 10})
	catchUp(t, raised)
	last := s.append(t, "tally-a", counted{4})
	catchUp(t, raised)
	if got := s.sum(t); got != 70 {
		t.Errorf("sum %d, want 70 from the new code alone", got)
	}
	for name, r := range map[string]*projections.Runner{"running": old, "started later": s.runner(t, &tally{})} {
		if err := r.CatchUp(t.Context(), "tally"); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s: %v, want INVALID_CONFIG", name, err)
		}
		if err := r.Wait(t.Context(), "tally", last+1); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s: wait: %v, want INVALID_CONFIG", name, err)
		}
	}
	if got := s.sum(t); got != 70 {
		t.Errorf("sum %d: the older program wrote", got)
	}
}

// While a rebuild runs, readers see the old rows, the live projection goes on, and nothing is lost at the swap.
func TestReadsNeverGoDark(t *testing.T) {
	s, y := prepare(t), &tally{}
	const streams, each = 20, 60
	for i := range streams {
		for range each / 2 {
			s.append(t, event.Stream(fmt.Sprintf("tally-%d", i)), counted{1}, counted{1})
		}
	}
	r := s.runner(t, y)
	catchUp(t, r)
	ctx, stop := context.WithCancel(t.Context())
	least := make(chan int, 1)
	go func() {
		lowest := streams * each
		for ctx.Err() == nil {
			var sum int
			if err := s.pool.QueryRow(ctx, `SELECT coalesce(sum(sum), 0) FROM tally`).Scan(&sum); err == nil {
				lowest = min(lowest, sum)
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		}
		least <- lowest
	}()
	more := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 50 && err == nil; i++ {
			_, err = s.store.Append(ctx, "tally-x", event.Version(i), event.Meta{}, counted{1})
			if err == nil {
				err = r.CatchUp(ctx, "tally")
			}
		}
		more <- err
	}()
	for range 2 {
		if err := r.Rebuild(t.Context(), "tally", nil); err != nil {
			t.Error(err)
		}
	}
	if err := <-more; err != nil {
		t.Error(err)
	}
	stop()
	if lowest := <-least; lowest < streams*each {
		t.Errorf("a reader saw a sum of %d", lowest)
	}
	catchUp(t, r)
	if got := s.sum(t); got != streams*each+50 {
		t.Errorf("sum %d, want %d", got, streams*each+50)
	}
}

// A reader that takes long holds up the swap, not the other readers; and a rebuild that is given up meanwhile leaves the way free for
// the next.
func TestTheSwapWaitsForALongReader(t *testing.T) {
	s, y := prepare(t), &tally{}
	s.append(t, "tally-a", counted{1})
	r := s.runner(t, y)
	catchUp(t, r)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT * FROM tally`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- r.Rebuild(ctx, "tally", nil) }()
	s.swaps(t, true)
	s.swaps(t, false)
	if sum := s.sum(t); sum != 1 {
		t.Errorf("sum %d", sum)
	}
	s.swaps(t, true)
	cancel()
	if err := <-rebuilt; err == nil {
		t.Error("the swap did not wait")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Rebuild(t.Context(), "tally", nil); err != nil || s.schemas(t) != 0 {
		t.Errorf("after it: %v, %d schemas left", err, s.schemas(t))
	}
}

// swaps waits until a swap stands in the queue for the table, or none does.
func (s setup) swaps(t *testing.T, stands bool) {
	t.Helper()
	const sql = `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'tally'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted)`
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		var is bool
		if err := s.pool.QueryRow(t.Context(), sql).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is == stands {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("in a minute it never came to a swap that waits: %v", stands)
		}
	}
}

func TestOneRebuildAtATime(t *testing.T) {
	s, y := prepare(t), &tally{}
	s.append(t, "tally-a", counted{1})
	r, other := s.runner(t, y), s.runner(t, &tally{})
	tried := false
	err := r.Rebuild(t.Context(), "tally", func(projections.Progress) {
		tried = true
		if err := other.Rebuild(t.Context(), "tally", nil); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("second rebuild: %v, want CONFLICT", err)
		}
	})
	if err != nil || !tried {
		t.Error(err, tried)
	}
}

// A rebuild that an event stops leaves the live rows and no side tables.
func TestAFailedRebuildChangesNothing(t *testing.T) {
	s, y := prepare(t), &tally{}
	s.append(t, "tally-a", counted{1})
	r := s.runner(t, y)
	catchUp(t, r)
	y.refuse = func(event.Recorded) error { return errRefused }
	if err := r.Rebuild(t.Context(), "tally", nil); err == nil {
		t.Error("no error")
	}
	if sum, left := s.sum(t), s.schemas(t); sum != 1 || left != 0 {
		t.Errorf("sum %d, %d schemas left", sum, left)
	}
}

func TestVerifyTellsEveryDifference(t *testing.T) {
	s, y := prepare(t), &tally{}
	for _, stream := range []event.Stream{"tally-a", "tally-b", "tally-c"} {
		s.append(t, stream, counted{1})
	}
	r := s.runner(t, y)
	catchUp(t, r)
	s.append(t, "tally-d", counted{1}) // beyond the checkpoint: no difference
	if found, err := r.Verify(t.Context(), "tally", nil); err != nil || len(found) != 0 {
		t.Fatalf("nothing is wrong: %v, %v", found, err)
	}
	s.exec(t, `UPDATE tally SET sum = 5 WHERE stream = 'tally-a'; DELETE FROM tally WHERE stream = 'tally-b';
		INSERT INTO tally VALUES ('tally-z', 1, 1)`)
	before := projectiontest.Rows(t, s.pool, y.projection())
	found, err := r.Verify(t.Context(), "tally", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range found {
		got[string(d.Live)] = string(d.Fresh)
	}
	want := map[string]string{
		`{"stream":"tally-a","sum":5,"version":1}`: `{"stream":"tally-a","sum":1,"version":1}`,
		"": `{"stream":"tally-b","sum":1,"version":1}`,
		`{"stream":"tally-z","sum":1,"version":1}`: "",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("differences %v, want %v", got, want)
	}
	if after := projectiontest.Rows(t, s.pool, y.projection()); fmt.Sprint(after) != fmt.Sprint(before) || s.schemas(t) != 0 {
		t.Error("verify changed something")
	}
}

func TestStatusTellsHowFarBehind(t *testing.T) {
	s, y := prepare(t), &tally{}
	s.append(t, "tally-a", counted{1})
	r := s.runner(t, y)
	if never := stoppedStatus(t, r); never.Version != 0 || never.Behind != 1 || never.Since == nil {
		t.Errorf("before it ran: %+v", never)
	}
	catchUp(t, r)
	s.append(t, "tally-a", ignored{})
	if level := stoppedStatus(t, r); level.Behind != 0 || level.Since != nil || level.Version != 1 {
		t.Errorf("behind nothing that it consumes: %+v", level)
	}
}
