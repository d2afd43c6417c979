package projections_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

// counted is an event of these tests; ignored is one that the tally does not consume.
type counted struct{ By int }

func (counted) EventType() string { return "tally.counted" }

type ignored struct{}

func (ignored) EventType() string { return "tally.ignored" }

// tally sums what each stream counted. refuse, if set, may fail an event.
type tally struct {
	version int
	factor  int // what another version of the code computes
	applied atomic.Int64
	refuse  func(event.Recorded) error
}

func (y *tally) projection() projections.Projection {
	return projections.Projection{
		Name: "tally", Version: y.version, Consumes: []string{"tally.counted"}, Tables: []string{"tally"}, Apply: y.apply,
	}
}

func (y *tally) apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	for _, e := range batch {
		if y.refuse != nil {
			if err := y.refuse(e); err != nil {
				return err
			}
		}
		const sql = `INSERT INTO tally (stream, sum, version) VALUES ($1, $2, $3) ON CONFLICT (stream) DO UPDATE
			SET sum = tally.sum + excluded.sum, version = excluded.version WHERE tally.version < excluded.version`
		if _, err := tx.Exec(ctx, sql, e.Stream, e.Event.(counted).By*y.factor, e.Version); err != nil {
			return err
		}
		y.applied.Add(1)
	}
	return nil
}

type setup struct {
	pool  *pgxpool.Pool
	store *memory.Store
}

func prepare(t *testing.T) setup {
	t.Helper()
	registry, err := event.NewRegistry(event.Table(
		event.Of[counted](1, "tally.counted"), event.Of[ignored](1, "tally.ignored"),
	))
	if err != nil {
		t.Fatal(err)
	}
	s := setup{pgtest.New(t), memory.New(registry)}
	s.exec(t, `CREATE TABLE tally (stream text PRIMARY KEY, sum bigint NOT NULL, version bigint NOT NULL) WITH (fillfactor = 90)`)
	s.exec(t, `CREATE INDEX tally_by_sum ON tally (sum)`)
	return s
}

func (s setup) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func (s setup) append(t *testing.T, stream event.Stream, events ...event.Event) event.Position {
	t.Helper()
	held, err := s.store.Read(t.Context(), stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.store.Append(t.Context(), stream, event.Version(len(held)), event.Meta{}, events...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (s setup) runner(t *testing.T, y *tally) *projections.Runner {
	t.Helper()
	if y.version == 0 {
		y.version, y.factor = 1, 1
	}
	r, err := projections.NewRunner(s.pool, s.store, y.projection())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s setup) sum(t *testing.T) (sum int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), `SELECT coalesce(sum(sum), 0) FROM tally`).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	return sum
}

func catchUp(t *testing.T, r *projections.Runner) {
	t.Helper()
	if err := r.CatchUp(t.Context(), "tally"); err != nil {
		t.Fatal(err)
	}
}

func TestRunnerRefusesWhatCannotRun(t *testing.T) {
	good := (&tally{version: 1}).projection()
	noVersion, badName := good, good
	noVersion.Version, badName.Name = 0, "Tally-1"
	for name, list := range map[string][]projections.Projection{
		"twice": {good, good}, "no version": {noVersion}, "bad name": {badName},
	} {
		if _, err := projections.NewRunner(nil, nil, list...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCatchUpMovesToTheHeadAcrossBatches(t *testing.T) {
	s, y := prepare(t), &tally{}
	r := s.runner(t, y)
	for i := range 13 {
		for range 200 / 2 {
			s.append(t, event.Stream(fmt.Sprintf("tally-%d", i)), counted{1}, ignored{})
		}
	}
	head := s.append(t, "tally-x", ignored{})
	catchUp(t, r)
	if got := s.sum(t); got != 1300 || r.Position("tally") != head {
		t.Errorf("sum %d at %s, want 1300 at %s", got, r.Position("tally"), head)
	}
	before := y.applied.Load()
	catchUp(t, s.runner(t, y))
	if y.applied.Load() != before {
		t.Error("another runner applied events again")
	}
}

var errRefused = errors.New("refused")

// An event that can't be applied stops the projection, tells where, and is applied once it can be (P11).
func TestAnErrorStopsAndDoesNotSkip(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errRefused },
		"panic": func() error { panic(errRefused) },
	} {
		t.Run(name, func(t *testing.T) {
			s, y := prepare(t), &tally{}
			s.append(t, "tally-a", counted{1}, ignored{}, counted{2})
			bad := s.append(t, "tally-b", counted{4})
			last := s.append(t, "tally-a", counted{8})
			y.refuse = func(e event.Recorded) error {
				if e.Position == bad {
					return fail()
				}
				return nil
			}
			r := s.runner(t, y)
			projections.Impatient(r)
			if err := r.CatchUp(t.Context(), "tally"); fault.CodeOf(err) != fault.Unavailable {
				t.Fatalf("catch up: %v, want UNAVAILABLE", err)
			}
			if got := s.sum(t); got != 3 {
				t.Errorf("sum %d, want 3: what came before is applied, nothing after", got)
			}
			status := stoppedStatus(t, r)
			if status.ErrorPosition != bad || status.Position != bad-1 || status.Error == "" || status.FailedAt == nil {
				t.Errorf("status %+v", status)
			}
			if err := r.Wait(t.Context(), "tally", last); fault.CodeOf(err) != fault.Unavailable {
				t.Errorf("wait: %v, want UNAVAILABLE at once", err)
			}
			other := s.runner(t, &tally{})
			if err := other.Wait(t.Context(), "tally", last); fault.CodeOf(err) != fault.Unavailable {
				t.Errorf("wait in another process: %v, want UNAVAILABLE", err)
			}
			if err := r.CatchUp(t.Context(), "tally"); fault.CodeOf(err) != fault.Unavailable || s.sum(t) != 3 {
				t.Errorf("again: %v", err)
			}
			y.refuse = nil
			catchUp(t, r)
			if got := s.sum(t); got != 15 {
				t.Errorf("sum %d, want 15", got)
			}
			if status := stoppedStatus(t, r); status.Error != "" || status.ErrorPosition != 0 || status.Position != last {
				t.Errorf("status %+v, want no error", status)
			}
		})
	}
}

func stoppedStatus(t *testing.T, r *projections.Runner) projections.Status {
	t.Helper()
	all, err := r.Status(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

func TestAStoppedProjectionRests(t *testing.T) {
	s, y := prepare(t), &tally{}
	s.append(t, "tally-a", counted{1})
	tries := 0
	y.refuse = func(event.Recorded) error { tries++; return errRefused }
	r := s.runner(t, y)
	projections.Patient(r)
	for range 3 {
		if err := r.CatchUp(t.Context(), "tally"); err == nil {
			t.Fatal("no error")
		}
	}
	if tries != 2 { // the batch, then the event alone
		t.Errorf("%d tries without a pause", tries)
	}
}

// Two replicas at once give each event once.
func TestTwoRunnersApplyEachEventOnce(t *testing.T) {
	s := prepare(t)
	y := &tally{}
	runners := []*projections.Runner{s.runner(t, y), s.runner(t, y)}
	const appends = 150
	var wg sync.WaitGroup
	for _, r := range runners {
		wg.Go(func() {
			for r.Position("tally") < appends {
				if err := r.CatchUp(t.Context(), "tally"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range appends {
		s.append(t, event.Stream(fmt.Sprintf("tally-%d", i%5)), counted{1})
	}
	wg.Wait()
	if sum, applied := s.sum(t), y.applied.Load(); sum != appends || applied != appends {
		t.Errorf("sum %d, applied %d, want %d of both", sum, applied, appends)
	}
}

// A projection is taken over as soon as its owner is gone.
func TestTakeover(t *testing.T) {
	s := prepare(t)
	s.append(t, "tally-a", counted{1})
	r := s.runner(t, &tally{})
	catchUp(t, r)
	p := s.append(t, "tally-a", counted{1})
	owner, err := pgx.Connect(t.Context(), s.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM checkpoints WHERE projection = 'tally' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.CatchUp(ctx, "tally"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("catch up while another owns it: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- r.CatchUp(t.Context(), "tally") }()
	if err := owner.PgConn().Conn().Close(); err != nil { // as a killed process leaves it
		t.Fatal(err)
	}
	if err := <-done; err != nil || r.Position("tally") != p {
		t.Errorf("takeover: %v at %s", err, r.Position("tally"))
	}
}

func TestWait(t *testing.T) {
	s := prepare(t)
	r, other := s.runner(t, &tally{}), s.runner(t, &tally{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	var f *fault.Error
	if err := r.Wait(ctx, "tally", 1); !errors.As(err, &f) || f.Code != fault.Timeout || f.Details["reached"] != event.Position(0) {
		t.Errorf("nothing to wait for: %v", err)
	}
	waits := make(chan error, 2)
	for _, w := range []*projections.Runner{r, other} {
		go func() { waits <- w.Wait(t.Context(), "tally", 1) }()
	}
	s.append(t, "tally-a", counted{1})
	catchUp(t, r)
	for range 2 {
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}
	if err := r.Wait(t.Context(), "other", 1); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a name that is not known: %v", err)
	}
}

// goesBack has the database lose what came after the first event, as a crash may.
func (s setup) goesBack(t *testing.T) {
	t.Helper()
	s.exec(t, `DELETE FROM tally WHERE stream = 'tally-b'`)
	s.exec(t, `UPDATE checkpoints SET position = 1`)
}

// A checkpoint that went back, as after a crash of the database, is followed.
func TestCheckpointMayGoBack(t *testing.T) {
	s, y := prepare(t), &tally{}
	r := s.runner(t, y)
	s.append(t, "tally-a", counted{1})
	s.append(t, "tally-b", counted{1})
	catchUp(t, r)
	s.goesBack(t)
	s.append(t, "tally-a", counted{1})
	catchUp(t, r)
	if got := s.sum(t); got != 3 {
		t.Errorf("sum %d, want 3", got)
	}
}

// What a waiter has seen another process apply may go back likewise: this process has not read it, and must not pass it over.
func TestWhatAWaiterSawMayGoBack(t *testing.T) {
	s := prepare(t)
	here, there := s.runner(t, &tally{}), s.runner(t, &tally{})
	s.append(t, "tally-a", counted{1})
	catchUp(t, here)
	p := s.append(t, "tally-b", counted{1})
	catchUp(t, there)
	if err := here.Wait(t.Context(), "tally", p); err != nil {
		t.Fatal(err)
	}
	s.goesBack(t)
	s.append(t, "tally-a", counted{1})
	catchUp(t, here)
	if got := s.sum(t); got != 3 {
		t.Errorf("sum %d, want 3", got)
	}
}

// A log at rest nudges nobody: that the database has lost its last moments is looked for, in each process that believes otherwise.
func TestACheckpointThatWentBackIsFound(t *testing.T) {
	s := prepare(t)
	here, there := s.runner(t, &tally{}), s.runner(t, &tally{})
	s.append(t, "tally-a", counted{1})
	catchUp(t, here)
	p := s.append(t, "tally-b", counted{1})
	catchUp(t, there)
	if err := here.Wait(t.Context(), "tally", p); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*projections.Runner{"its owner": there, "a waiter": here} {
		if err := r.Confirm(t.Context()); err != nil || r.Position("tally") != p {
			t.Errorf("%s: %v, at %s", name, err, r.Position("tally"))
		}
	}
	s.goesBack(t)
	for name, r := range map[string]*projections.Runner{"its owner": there, "a waiter": here} {
		if err := r.Confirm(t.Context()); err != nil || r.Position("tally") != 1 {
			t.Errorf("%s after a crash: %v, at %s", name, err, r.Position("tally"))
		}
	}
	catchUp(t, there)
	if got := s.sum(t); got != 2 {
		t.Errorf("sum %d, want 2", got)
	}
}
