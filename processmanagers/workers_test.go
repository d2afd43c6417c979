package processmanagers_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/processmanagers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// table is wake-ups in memory, for one key.
type table struct {
	mu      sync.Mutex
	due     bool
	leased  bool
	number  int64
	renews  int
	refuse  bool // to renew
	settled []processmanagers.Settled
	nudged  chan struct{}
	told    chan struct{} // a value per settled lease
}

func newTable() *table {
	return &table{due: true, nudged: make(chan struct{}, 1), told: make(chan struct{}, 100)}
}

func (t *table) Wake(context.Context, string, ...string) error { return nil }

func (t *table) Nudged() <-chan struct{} { return t.nudged }

func (t *table) Lease(ctx context.Context, r processmanagers.LeaseRequest) ([]processmanagers.Lease, time.Duration, error) {
	if len(r.Settled) > 0 {
		if err := t.Settle(ctx, r.Holder, r.Settled); err != nil {
			return nil, 0, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.due || t.leased {
		return nil, time.Hour, nil
	}
	t.leased = true
	t.number++
	attempts := 0
	if n := len(t.settled); n > 0 {
		attempts = t.settled[n-1].Attempts
	}
	return []processmanagers.Lease{{Manager: r.Managers[0], Key: "k", Number: t.number, Attempts: attempts}}, time.Hour, nil
}

func (t *table) Renew(_ context.Context, _ string, _ time.Duration, l []processmanagers.Lease) ([]processmanagers.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renews++
	if t.refuse {
		return nil, nil
	}
	return l, nil
}

func (t *table) Settle(_ context.Context, _ string, settled []processmanagers.Settled) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = append(t.settled, settled...)
	t.leased = false
	t.due = settled[len(settled)-1].Again > 0
	for range settled {
		t.told <- struct{}{}
	}
	return nil
}

func (t *table) at(n int) processmanagers.Settled {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled[n]
}

func wakesNothing(event.Recorded) (string, bool) { return "", false }

// run runs workers with one manager until the test ends.
func run(t *testing.T, table *table, o processmanagers.Options, reconcile func(context.Context, string) (time.Duration, error),
) (stop func()) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	o.FirstRetry, o.Poll = time.Millisecond, 5*time.Millisecond
	workers, err := processmanagers.NewWorkers(table, o, processmanagers.Manager{
		Name: "m", Wakes: wakesNothing, Reconcile: reconcile,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the workers ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// bubble runs a subtest on a clock of its own: how busy the computer is does not matter.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

func TestAPanicAndAnErrorAreTriedAgain(t *testing.T) {
	table, calls := newTable(), 0
	run(t, table, processmanagers.Options{}, func(context.Context, string) (time.Duration, error) {
		switch calls++; calls {
		case 1:
			panic("index out of range")
		case 2:
			return 0, errors.New("no route")
		}
		return 0, nil
	})
	for attempt, want := range []string{"INTERNAL: process manager m panicked", "no route", ""} {
		await(t, "a pass is settled", table.told)
		got := table.at(attempt)
		if got.Error != want || (want != "") != (got.Attempts == attempt+1) || (want != "") != (got.Again > 0) {
			t.Errorf("pass %d settled as %+v, want error %q", attempt, got, want)
		}
	}
}

// A holder whose lease lapsed stops before another starts.
func TestAPassEndsWithItsLease(t *testing.T) {
	for name, refuse := range map[string]bool{"renewed": false, "refused": true} {
		bubble(t, name, func(t *testing.T) {
			table := newTable()
			table.refuse = refuse
			const ttl = 120 * time.Millisecond
			began := time.Now()
			why := make(chan error, 10)
			run(t, table, processmanagers.Options{TTL: ttl}, func(ctx context.Context, _ string) (time.Duration, error) {
				select {
				case <-ctx.Done():
					why <- context.Cause(ctx)
				case <-time.After(3 * ttl):
					why <- nil
				}
				return 0, ctx.Err()
			})
			err := <-why
			switch took := time.Since(began); {
			case refuse && (!errors.Is(err, processmanagers.ErrLeaseLost) || took > 2*ttl):
				t.Errorf("it was stopped after %v by %v", took, err)
			case !refuse && err != nil:
				t.Errorf("it was stopped after %v by %v", took, err)
			}
			await(t, "the pass is settled", table.told)
			if s := table.at(0); refuse && (s.Attempts != 0 || s.Error != "" || s.Again == 0) {
				t.Errorf("a lost lease counts as a failure: %+v", s)
			}
		})
	}
}

// A database that hangs renews nothing: the pass is stopped while its lease is still its own.
func TestAPassEndsWhereTheTableIsAway(t *testing.T) { synctest.Test(t, aPassEndsWhereTheTableIsAway) }

func aPassEndsWhereTheTableIsAway(t *testing.T) {
	table := &hanging{table: newTable()}
	const ttl = 200 * time.Millisecond
	stopped := make(chan time.Duration, 1)
	workers, err := processmanagers.NewWorkers(table, processmanagers.Options{
		Logger: slog.New(slog.DiscardHandler), TTL: ttl, Grace: ttl,
	}, processmanagers.Manager{Name: "m", Wakes: wakesNothing, Reconcile: func(ctx context.Context, _ string) (time.Duration, error) {
		began := time.Now()
		<-ctx.Done()
		stopped <- time.Since(began)
		return 0, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx) }()
	if took := <-stopped; took > ttl {
		t.Errorf("it was stopped after %v, the lease being over after %v", took, ttl)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type hanging struct{ *table }

func (h *hanging) Renew(ctx context.Context, _ string, _ time.Duration, _ []processmanagers.Lease) ([]processmanagers.Lease, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lapsing is a table whose one key a process had leased, as workers do, that died then.
type lapsing struct {
	*table
	until time.Time
}

func (l *lapsing) Lease(ctx context.Context, r processmanagers.LeaseRequest) ([]processmanagers.Lease, time.Duration, error) {
	if l.until.IsZero() {
		l.until = time.Now().Add(r.TTL)
	}
	if left := time.Until(l.until); left > 0 {
		return nil, left, nil
	}
	return l.table.Lease(ctx, r)
}

// A process that dies holding keys is followed by another within five seconds.
func TestTakeoverWithinFiveSeconds(t *testing.T) { synctest.Test(t, takeoverWithinFiveSeconds) }

func takeoverWithinFiveSeconds(t *testing.T) {
	began, taken := time.Now(), make(chan time.Duration, 1)
	workers, err := processmanagers.NewWorkers(&lapsing{table: newTable()}, processmanagers.Options{Logger: slog.New(slog.DiscardHandler)},
		processmanagers.Manager{Name: "m", Wakes: wakesNothing, Reconcile: func(context.Context, string) (time.Duration, error) {
			taken <- time.Since(began)
			return 0, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx) }()
	if took := <-taken; took > 5*time.Second || took < time.Second {
		t.Errorf("taken over after %v", took)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestShutdownWaitsThenStops(t *testing.T) {
	for name, patient := range map[string]bool{"within the grace": true, "beyond it": false} {
		bubble(t, name, func(t *testing.T) {
			table, started := newTable(), make(chan struct{})
			stop := run(t, table, processmanagers.Options{Grace: 50 * time.Millisecond}, func(ctx context.Context, _ string) (time.Duration, error) {
				close(started)
				if patient {
					<-time.After(10 * time.Millisecond)
					return 0, ctx.Err()
				}
				<-ctx.Done()
				return 0, ctx.Err()
			})
			await(t, "the pass has begun", started)
			stop()
			s := table.at(0)
			if s.Error != "" || s.Attempts != 0 || patient != (s.Again == 0) {
				t.Errorf("settled as %+v", s)
			}
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	table := newTable()
	run(t, table, processmanagers.Options{LastRetry: time.Hour, FirstRetry: time.Hour},
		func(context.Context, string) (time.Duration, error) {
			return 0, errors.New(strings.Repeat("ä\x00", 10_000))
		})
	await(t, "the pass is settled", table.told)
	if text := table.at(0).Error; len(text) > 8<<10 || strings.Contains(text, "\x00") {
		t.Errorf("%d bytes are kept", len(text))
	}
}

func TestManagersAreWhole(t *testing.T) {
	whole := processmanagers.Manager{
		Name: "m", Wakes: wakesNothing,
		Reconcile: func(context.Context, string) (time.Duration, error) { return 0, nil },
	}
	nameless, sleepless, idle := whole, whole, whole
	nameless.Name, sleepless.Wakes, idle.Reconcile = "", nil, nil
	for _, list := range [][]processmanagers.Manager{{nameless}, {sleepless}, {idle}, {whole, whole}} {
		if _, err := processmanagers.NewWorkers(newTable(), processmanagers.Options{}, list...); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%v for %v", err, list)
		}
	}
}
