package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
)

// An announcement is followed by a pause, so that a burst of commits costs few of them: every NOTIFY takes a lock
// that all notifying transactions of the server share.
const (
	announcePause = 3 * time.Millisecond
	notifyTimeout = 5 * time.Second
)

// Announcer sends notifications on one channel, on a connection of its own and outside everybody's transactions.
// Announcements made while one is under way become one, the latest.
type Announcer struct {
	config  *pgx.ConnConfig
	channel string
	end     context.CancelFunc
	ended   sync.WaitGroup
	due     chan struct{}

	mu     sync.Mutex
	latest string
}

// NewAnnouncer starts an announcer. It connects when the first announcement is due, and again after the server was
// away.
func NewAnnouncer(config *pgx.ConnConfig, channel string) *Announcer {
	ctx, end := context.WithCancel(context.Background())
	a := &Announcer{config: config.Copy(), channel: channel, end: end, due: make(chan struct{}, 1)}
	// Nobody relies on a notification surviving a crash, so its commit waits for no disk.
	a.config.RuntimeParams["synchronous_commit"] = "off"
	a.ended.Go(func() { a.run(ctx) })
	return a
}

// Announce has payload sent soon, at most 8,000 bytes. It never waits.
func (a *Announcer) Announce(payload string) {
	a.mu.Lock()
	a.latest = payload
	a.mu.Unlock()
	select {
	case a.due <- struct{}{}:
	default: // one is due already, and will take the latest
	}
}

// Close ends the announcer; what is due is not sent any more.
func (a *Announcer) Close() {
	a.end()
	a.ended.Wait()
}

func (a *Announcer) run(ctx context.Context) {
	link := newLink(a.config)
	defer link.close()
	for {
		select {
		case <-a.due:
		case <-ctx.Done():
			return
		}
		for link.use(ctx, a.send) != nil && ctx.Err() == nil {
			pause(ctx, link.next())
		}
		pause(ctx, announcePause)
	}
}

func (a *Announcer) send(ctx context.Context, conn *pgx.Conn) error {
	a.mu.Lock()
	payload := a.latest
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", a.channel, payload)
	return err
}

// Hearing is what a listener does. Its functions are called one at a time.
type Hearing struct {
	// Connected is called on each new connection, once it hears the channel.
	Connected func(context.Context, *pgx.Conn) error
	// Look is called after Connected, when notifications may have been missed, and then after each Period.
	Look   func(context.Context, *pgx.Conn) error
	Period time.Duration
	// Heard is called for each notification that another connection sent.
	Heard func(payload string)
}

// Listener hears one channel on a connection of its own, and looks for itself now and then.
type Listener struct {
	end   context.CancelFunc
	ended sync.WaitGroup
}

// Listen starts a listener. It connects again whenever its connection is lost or a function fails.
func Listen(config *pgx.ConnConfig, channel string, h Hearing) *Listener {
	ctx, end := context.WithCancel(context.Background())
	l := &Listener{end: end}
	l.ended.Go(func() {
		link := newLink(config.Copy())
		defer link.close()
		for ctx.Err() == nil {
			// It ends only with an error, and is begun again on another connection.
			_ = link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error { return h.run(ctx, conn, channel) })
			pause(ctx, link.next())
		}
	})
	return l
}

// Close ends the listener. No function of it runs any more when Close returns.
func (l *Listener) Close() {
	l.end()
	l.ended.Wait()
}

func (h Hearing) run(ctx context.Context, conn *pgx.Conn, channel string) error {
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	if err := inTime(ctx, conn, h.Connected); err != nil {
		return err
	}
	for {
		if err := inTime(ctx, conn, h.Look); err != nil {
			return err
		}
		if err := h.hear(ctx, conn); err != nil {
			return err
		}
	}
}

func inTime(ctx context.Context, conn *pgx.Conn, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	return f(ctx, conn)
}

// hear returns nil after one period.
func (h Hearing) hear(ctx context.Context, conn *pgx.Conn) error {
	period, cancel := context.WithTimeout(ctx, h.Period)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(period)
		switch {
		case err == nil && n.PID != conn.PgConn().PID():
			h.Heard(n.Payload)
		case err == nil:
		case period.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// link is one connection that is made again when it is lost, ever more patiently.
type link struct {
	config *pgx.ConnConfig
	conn   *pgx.Conn
	delays *backoff.ExponentialBackOff
}

func newLink(config *pgx.ConnConfig) *link {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = 20*time.Millisecond, 2*time.Second
	return &link{config: config, delays: delays}
}

// use calls f with a connection. An error closes it, so that the next use has a new one.
func (l *link) use(ctx context.Context, f func(context.Context, *pgx.Conn) error) (err error) {
	if l.conn == nil {
		connecting, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		if l.conn, err = pgx.ConnectConfig(connecting, l.config); err != nil {
			l.conn = nil
			return err
		}
		l.delays.Reset()
	}
	if err = f(ctx, l.conn); err != nil {
		l.close()
	}
	return err
}

// next is how long to wait before the next use after an error, with jitter.
func (l *link) next() time.Duration { return l.delays.NextBackOff() }

func (l *link) close() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // it may be broken: then there is nothing to say goodbye to
	l.conn = nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
