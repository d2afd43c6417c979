package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/bus"
	"github.com/better-compute/metal/domain/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should be there at once.
const patience = 20 * time.Second

// testLog is a log of which only the head is known. A deaf one never wakes anyone.
type testLog struct {
	mu    sync.Mutex
	head  event.Position
	wake  chan struct{}
	deaf  bool
	fails error
	asked atomic.Int64
}

func newLog() *testLog { return &testLog{wake: make(chan struct{})} }

func (l *testLog) append() event.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head++
	close(l.wake)
	l.wake = make(chan struct{})
	return l.head
}

func (l *testLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

func (l *testLog) Head(context.Context) (event.Position, error) {
	l.asked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.fails
}

func (l *testLog) Changed(ctx context.Context, after event.Position) error {
	for {
		l.mu.Lock()
		head, wake, deaf, fails := l.head, l.wake, l.deaf, l.fails
		l.mu.Unlock()
		if fails != nil {
			return fails
		}
		if deaf {
			wake = nil
		} else if head > after {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reader is a follower whose work is to look where the log is.
type reader struct {
	log   *testLog
	at    atomic.Uint64
	calls atomic.Int64
	inUse atomic.Bool
	err   func(call int64) error // nil: none
}

func (r *reader) follower(t *testing.T, name string) bus.Follower {
	return bus.Follower{
		Name:     name,
		Position: func() event.Position { return event.Position(r.at.Load()) },
		CatchUp: func(ctx context.Context) error {
			if !r.inUse.CompareAndSwap(false, true) {
				t.Errorf("%s: two calls at once", name)
			}
			defer r.inUse.Store(false)
			call := r.calls.Add(1)
			if r.err != nil {
				if err := r.err(call); err != nil {
					return err
				}
			}
			head, err := r.log.Head(ctx)
			r.at.Store(uint64(head))
			return err
		},
	}
}

// run runs a bus until the test ends, and fails the test where it does not end well.
func run(t *testing.T, log bus.Log, o bus.Options, followers ...bus.Follower) (stop func()) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FirstRetry == 0 {
		o.FirstRetry, o.LastRetry = time.Millisecond, 10*time.Millisecond
	}
	b, err := bus.New(log, followers, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the bus ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		pauseBriefly()
	}
}

func pauseBriefly() { <-time.After(time.Millisecond) }

func TestEveryFollowerGetsThere(t *testing.T) { synctest.Test(t, everyFollowerGetsThere) }

func everyFollowerGetsThere(t *testing.T) {
	log := newLog()
	var failures atomic.Int64
	readers := []*reader{{log: log}, {log: log}, {log: log, err: func(call int64) error {
		if call == 2 || call == 3 {
			failures.Add(1)
			return errors.New("the database went away")
		}
		return nil
	}}}
	var observed, observedErrors atomic.Int64
	run(t, log, bus.Options{Observe: func(_ string, _ time.Duration, err error) {
		observed.Add(1)
		if err != nil {
			observedErrors.Add(1)
		}
	}}, readers[0].follower(t, "view"), readers[1].follower(t, "history"), readers[2].follower(t, "doctor"))

	const nudges = 1000
	for at := event.Position(1); at <= nudges; at++ {
		log.append()
		if at%10 == 0 { // let some of them be nudges of their own
			eventually(t, "the first follower comes along", func() bool { return readers[0].at.Load() >= uint64(at) })
		}
	}
	for i, r := range readers {
		eventually(t, "a follower is at the head", func() bool { return r.at.Load() == nudges })
		if calls := r.calls.Load(); i == 0 && calls < nudges/10 {
			t.Errorf("the first follower was called %d times, want 100 or more", calls)
		}
	}
	if failures.Load() != 2 || observedErrors.Load() != 2 || observed.Load() < nudges/10 {
		t.Errorf("%d failures, %d observed among %d calls; want 2 and 2",
			failures.Load(), observedErrors.Load(), observed.Load())
	}
}

func TestAPanicIsRetried(t *testing.T) { synctest.Test(t, aPanicIsRetried) }

func aPanicIsRetried(t *testing.T) {
	log := newLog()
	var out strings.Builder
	var writing sync.Mutex
	r := &reader{log: log, err: func(call int64) error {
		if call <= 3 {
			panic("index out of range")
		}
		return nil
	}}
	began := time.Now()
	stop := run(t, log, bus.Options{Logger: slog.New(slog.NewTextHandler(&lockedWriter{&writing, &out}, nil))},
		r.follower(t, "view"))
	log.append()
	eventually(t, "the follower is at the head", func() bool { return r.at.Load() == 1 })
	stop()
	if r.calls.Load() != 4 || time.Since(began) > patience/2 {
		t.Errorf("%d calls in %v, want 3 that panic and one that works", r.calls.Load(), time.Since(began))
	}
	if !strings.Contains(out.String(), "index out of range") {
		t.Errorf("the log does not tell of the panic: %s", out.String())
	}
}

func TestWhoPanicsForEverWaitsBetweenTries(t *testing.T) {
	synctest.Test(t, whoPanicsForEverWaitsBetweenTries)
}

func whoPanicsForEverWaitsBetweenTries(t *testing.T) {
	log := newLog()
	r := &reader{log: log, err: func(int64) error { panic("index out of range") }}
	began := time.Now()
	stop := run(t, log, bus.Options{FirstRetry: 50 * time.Millisecond}, r.follower(t, "view"))
	log.append()
	eventually(t, "the third try", func() bool { return r.calls.Load() >= 3 })
	stop()
	// With half of each pause random, the first two pauses are 75 ms at least. A message that is given back at once
	// would be there thousands of times.
	if took := time.Since(began); took < 60*time.Millisecond || r.calls.Load() > 20 {
		t.Errorf("%d calls in %v", r.calls.Load(), took)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *strings.Builder
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestALostNudgeCostsOneTick(t *testing.T) { synctest.Test(t, aLostNudgeCostsOneTick) }

func aLostNudgeCostsOneTick(t *testing.T) {
	log := newLog()
	log.deaf = true
	r := &reader{log: log}
	run(t, log, bus.Options{}, r.follower(t, "view"))
	eventually(t, "the bus runs", func() bool { return log.asked.Load() > 0 })
	log.append()
	began := time.Now()
	eventually(t, "the tick finds the event", func() bool { return r.at.Load() == 1 })
	if took := time.Since(began); took > 5*bus.MinTick {
		t.Errorf("it took %v, want about one tick", took)
	}
}

func TestNothingNewCallsNobody(t *testing.T) { synctest.Test(t, nothingNewCallsNobody) }

func nothingNewCallsNobody(t *testing.T) {
	log := newLog()
	log.head = 7
	ahead := &reader{log: log}
	ahead.at.Store(9)
	behind := &reader{log: log}
	run(t, log, bus.Options{}, ahead.follower(t, "ahead"), behind.follower(t, "behind"))
	eventually(t, "two ticks passed", func() bool { return log.asked.Load() > 3 })
	if a, b := ahead.calls.Load(), behind.calls.Load(); a != 0 || b != 1 {
		t.Errorf("the follower ahead was called %d times and the one behind %d times, want 0 and 1", a, b)
	}
	if asked := log.asked.Load(); asked > 10 {
		t.Errorf("the log was asked %d times at rest", asked)
	}
}

func TestOneFailingFollowerHoldsNoOtherBack(t *testing.T) {
	synctest.Test(t, oneFailingFollowerHoldsNoOtherBack)
}

func oneFailingFollowerHoldsNoOtherBack(t *testing.T) {
	log := newLog()
	broken := &reader{log: log, err: func(int64) error { return errors.New("refused") }}
	good := &reader{log: log}
	run(t, log, bus.Options{}, broken.follower(t, "broken"), good.follower(t, "good"))
	for at := uint64(1); at <= 200; at++ {
		log.append()
		eventually(t, "the good follower comes along", func() bool { return good.at.Load() == at })
	}
	if broken.calls.Load() < 2 || broken.at.Load() != 0 {
		t.Errorf("the broken follower was called %d times and is at %d", broken.calls.Load(), broken.at.Load())
	}
}

func TestTheLogComesBack(t *testing.T) {
	log := newLog()
	log.fail(errors.New("connection refused"))
	r := &reader{log: log}
	run(t, log, bus.Options{}, r.follower(t, "view"))
	eventually(t, "the bus asked", func() bool { return log.asked.Load() > 0 })
	log.append()
	log.fail(nil)
	eventually(t, "the follower is at the head", func() bool { return r.at.Load() == 1 })
}

func TestShutdownWaitsForWhatRuns(t *testing.T) { synctest.Test(t, shutdownWaitsForWhatRuns) }

func shutdownWaitsForWhatRuns(t *testing.T) {
	log := newLog()
	log.head = 1
	started := make(chan struct{})
	var returned atomic.Bool
	stop := run(t, log, bus.Options{}, bus.Follower{
		Name:     "view",
		Position: func() event.Position { return 0 },
		CatchUp: func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			<-time.After(50 * time.Millisecond) // a transaction that rolls back
			returned.Store(true)
			return ctx.Err()
		},
	})
	<-started
	stop()
	if !returned.Load() {
		t.Error("the bus ended before its follower")
	}
}

func TestShutdownNamesWhoDoesNotReturn(t *testing.T) {
	log := newLog()
	log.head = 1
	started, release := make(chan struct{}), make(chan struct{})
	b, err := bus.New(log, []bus.Follower{{
		Name:     "stuck",
		Position: func() event.Position { return 0 },
		CatchUp: func(context.Context) error {
			close(started)
			<-release
			return nil
		},
	}}, bus.Options{Grace: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-started
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("got %v, want an error that names the follower", err)
	}
	close(release)
}

func TestABusWithoutFollowersEnds(t *testing.T) { run(t, newLog(), bus.Options{})() }

func TestNewRefusesBadFollowers(t *testing.T) {
	log := newLog()
	good := (&reader{log: log}).follower(t, "view")
	unnamed, idle, nowhere := good, good, good
	unnamed.Name, idle.CatchUp, nowhere.Position = "", nil, nil
	for name, followers := range map[string][]bus.Follower{
		"no name": {unnamed}, "nothing to do": {idle}, "no position": {nowhere}, "twice": {good, good},
	} {
		if _, err := bus.New(log, followers, bus.Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
