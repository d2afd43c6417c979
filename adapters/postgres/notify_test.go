package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/test/pgtest"
)

// A burst of announcements becomes few, of which the last always arrives; and when a listener's connection is cut, it
// connects again and looks for what it missed.
func TestAnnounceAndListen(t *testing.T) {
	pool := pgtest.New(t)
	config := pool.Config().ConnConfig
	announcer := postgres.NewAnnouncer(config, "news")
	defer announcer.Close()
	heard, looked, connected := make(chan string, 2000), make(chan struct{}, 100), make(chan uint32, 100)
	listener := postgres.Listen(config, "news", postgres.Hearing{
		Connected: func(_ context.Context, c *pgx.Conn) error { connected <- c.PgConn().PID(); return nil },
		Look:      func(context.Context, *pgx.Conn) error { looked <- struct{}{}; return nil },
		Period:    time.Hour,
		Heard:     func(payload string) { heard <- payload },
	})
	defer listener.Close()
	pid := <-connected
	<-looked

	for n := range 1000 {
		announcer.Announce(fmt.Sprint(n))
	}
	count := 1
	for payload := <-heard; payload != "999"; payload = <-heard {
		count++
	}
	if count > 500 {
		t.Errorf("1000 announcements at once became %d notifications", count)
	}

	if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid); err != nil {
		t.Fatal(err)
	}
	if again := <-connected; again == pid {
		t.Error("the listener still has the connection that was cut")
	}
	<-looked
	announcer.Announce("after the cut")
	for payload := <-heard; payload != "after the cut"; payload = <-heard {
		if payload != "999" { // the last of the burst may come twice
			t.Errorf("heard %q", payload)
		}
	}
}

// What a listener's own connection says it does not hear.
func TestListenerDoesNotHearItself(t *testing.T) {
	pool := pgtest.New(t)
	heard := make(chan string, 10)
	listener := postgres.Listen(pool.Config().ConnConfig, "news", postgres.Hearing{
		Connected: func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SELECT pg_notify('news', 'own')")
			return err
		},
		Look: func(ctx context.Context, c *pgx.Conn) error {
			_, err := pool.Exec(ctx, "SELECT pg_notify('news', 'of another')")
			return err
		},
		Period: time.Hour,
		Heard:  func(payload string) { heard <- payload },
	})
	defer listener.Close()
	if payload := <-heard; payload != "of another" {
		t.Errorf("heard %q", payload)
	}
}
