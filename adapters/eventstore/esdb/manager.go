package esdb

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errClosed = errors.New("the store is closed")

// manager hands out the one client that now works, and looks for another where there is none. All its clients have the
// same identity: that of config.
type manager struct {
	config client.Configuration
	log    *slog.Logger
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	work   sync.WaitGroup // dials and calls

	mu      sync.Mutex
	current *session
	dialing chan struct{} // closed when the dial that runs has succeeded; nil when none runs
	lastErr error         // of the newest dial
}

func newManager(config *client.Configuration, log *slog.Logger) *manager {
	m := &manager{config: *config, log: log}
	m.ctx, m.stop = context.WithCancel(context.Background())
	// The manager tries again by itself, with back-off: the client gives up after one round, so that nothing waits in it.
	m.config.MaxDiscoverAttempts = 1
	return m
}

// acquire gives the client that works, waiting for one until ctx ends. Each acquire needs one release.
func (m *manager) acquire(ctx context.Context) (*session, error) {
	for {
		m.mu.Lock()
		if m.ctx.Err() != nil {
			m.mu.Unlock()
			return nil, errClosed
		}
		if s := m.current; s != nil {
			s.calls++
			s.entering.Add(1)
			m.work.Add(1)
			m.mu.Unlock()
			return s, nil
		}
		if m.dialing == nil {
			m.dialing = make(chan struct{})
			m.work.Add(1)
			go m.dial(m.dialing)
		}
		ready := m.dialing
		m.mu.Unlock()
		select {
		case <-ready:
		case <-m.ctx.Done():
			return nil, errClosed
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), m.lastDial())
		}
	}
}

func (m *manager) lastDial() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastErr
}

// dial tries until it has a client that found a node, then opens ready.
func (m *manager) dial(ready chan struct{}) {
	defer m.work.Done()
	wait := pause()
	for m.ctx.Err() == nil {
		s, err := m.connect()
		if err == nil {
			m.install(s, ready)
			return
		}
		m.log.Warn("no event store found", "error", err)
		m.mu.Lock()
		m.lastErr = err
		m.mu.Unlock()
		select {
		case <-time.After(wait.NextBackOff()):
		case <-m.ctx.Done():
		}
	}
}

func (m *manager) install(s *session, ready chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil { // closed meanwhile: nobody will use it
		_ = s.client.Close() // never fails
		return
	}
	m.current, m.dialing, m.lastErr = s, nil, nil
	close(ready)
}

// connect makes a client and has it find a node. A client that finds none is dead, and nobody else has it.
func (m *manager) connect() (s *session, err error) {
	s = &session{gone: make(chan struct{})}
	config := m.config
	config.Logger = func(level client.LogLevel, format string, args ...any) { m.hear(s, level, format, args) }
	if s.client, err = client.NewClient(&config); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r}
		}
		if err != nil {
			_ = s.client.Close() // never fails
		}
	}()
	_, err = s.client.GetServerVersion()
	return s, err
}

// hear takes what a client logs. An error that makes the client forget its connection is logged before it does so, in
// the goroutine of the call that failed. That is the one moment to keep other calls from starting a discovery in it,
// which would lose the connection and, if it failed, leave every other call waiting for ever: so no call is let in
// from here on, and those that were let in get past the place where they would start one.
func (m *manager) hear(s *session, level client.LogLevel, format string, args []any) {
	m.log.Debug("event store client", "level", level, "format", format, "args", args)
	if level != client.LogError || len(args) != 1 {
		return
	}
	if err, ok := args[0].(error); ok && status.Code(err) == codes.Unavailable {
		m.abandon(s, err)
		s.entering.Wait()
	}
}

// release gives a client back after a call that ended with f, nil where it went well.
func (m *manager) release(s *session, f *failure) {
	m.mu.Lock()
	defer m.work.Done()
	defer m.mu.Unlock()
	s.calls--
	if f != nil {
		m.judge(s, f)
	}
	m.bury(s)
}

// judge replaces a client that a failure tells to be dead or hanging, or that has moved often.
func (m *manager) judge(s *session, f *failure) {
	if f.kind == moved {
		s.moves++
	}
	if f.kind == broken || s.moves >= maxMoves {
		m.retire(s, f)
	}
}

// abandon replaces a client that hangs. The calls in it are left behind: the last to return closes it.
func (m *manager) abandon(s *session, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retire(s, why)
	m.bury(s)
}

func (m *manager) retire(s *session, why error) {
	if s.closed {
		return
	}
	s.closed = true
	close(s.gone)
	if m.current == s {
		m.current = nil
		m.log.Info("event store client replaced", "reason", why)
	}
}

// bury closes a replaced client once its last call has returned: its sends on a closed channel would panic.
func (m *manager) bury(s *session) {
	if s.closed && s.calls == 0 {
		_ = s.client.Close() // never fails
	}
}

// close ends all calls and waits until they are gone, but not for ever: a call may hang in the client.
func (m *manager) close(patience time.Duration) {
	m.stop()
	m.mu.Lock()
	if s := m.current; s != nil {
		m.retire(s, errClosed)
		m.bury(s)
	}
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		m.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		m.log.Warn("calls hang in the event store client", "after", patience)
	}
}

// pause is the back-off with jitter between attempts.
func pause() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 5*time.Second
	return b
}
