package postgres_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/pgtest"
)

func begin(t *testing.T, o *postgres.Outcomes, principal, key, request string) postgres.Outcome {
	t.Helper()
	got, err := o.Begin(t.Context(), principal, key, []byte(request), uuid.Must(uuid.NewV7()))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOutcomeIsGivenAgain(t *testing.T) {
	pool := pgtest.New(t)
	o := postgres.NewOutcomes(pool, newSecrets(t, pool))
	first := begin(t, o, "prn_a", "k1", "deploy")
	if again := begin(t, o, "prn_a", "k1", "deploy"); again.Done || again.Command != first.Command {
		t.Errorf("before the answer: got %+v, want the command id %s", again, first.Command)
	}
	want := postgres.Outcome{
		Command: first.Command, Done: true, Status: 201,
		Header: http.Header{"Metal-Position": {"17"}}, Body: []byte(`{"token":"metal_abc"}`),
	}
	if err := o.Finish(t.Context(), "prn_a", "k1", want.Status, want.Header, want.Body); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, begin(t, o, "prn_a", "k1", "deploy")); diff != "" {
		t.Error(diff)
	}
	if err := o.Finish(t.Context(), "prn_a", "k1", 409, nil, []byte("later")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, begin(t, o, "prn_a", "k1", "deploy")); diff != "" {
		t.Error("a second answer replaced the first:", diff)
	}
	if n := exec(t, pool, `SELECT FROM outcomes WHERE position('metal_abc'::bytea IN answer) > 0`); n != 0 {
		t.Error("the answer is stored in clear")
	}
	for name, other := range map[string]postgres.Outcome{
		"another principal": begin(t, o, "prn_b", "k1", "deploy"),
		"another key":       begin(t, o, "prn_a", "K1", "deploy"),
	} {
		if other.Done || other.Command == first.Command {
			t.Errorf("%s got the outcome of the first: %+v", name, other)
		}
	}
}

func TestOutcomeOfAnotherRequestIsRefused(t *testing.T) {
	pool := pgtest.New(t)
	o := postgres.NewOutcomes(pool, newSecrets(t, pool))
	begin(t, o, "prn_a", "k1", "deploy")
	for _, finished := range []bool{false, true} {
		_, err := o.Begin(t.Context(), "prn_a", "k1", []byte("retire"), uuid.Must(uuid.NewV7()))
		wantIssue(t, err)
		if !finished {
			if err := o.Finish(t.Context(), "prn_a", "k1", 200, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func wantIssue(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, fault.InvalidInput)
	if err != nil && !strings.Contains(err.Error(), "header.Idempotency-Key: ") {
		t.Errorf("%v does not name the header", err)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	pool := pgtest.New(t)
	o := postgres.NewOutcomes(pool, newSecrets(t, pool))
	for _, key := range []string{"", " ", "a b", "a\n", "ä", "\xff", "a\x00", "\x7f", strings.Repeat("k", 256)} {
		_, err := o.Begin(t.Context(), "prn_a", key, []byte("x"), uuid.Must(uuid.NewV7()))
		wantIssue(t, err)
	}
	for _, key := range []string{"!", "~", `'"\;--`, strings.Repeat("k", 255)} {
		begin(t, o, "prn_a", key, "x")
	}
}

func TestOneKeyAtOnceIsOneCommand(t *testing.T) {
	pool := pgtest.New(t)
	o := postgres.NewOutcomes(pool, newSecrets(t, pool))
	const callers = 32
	got := make([]uuid.UUID, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			outcome, err := o.Begin(t.Context(), "prn_a", "k1", []byte("x"), uuid.Must(uuid.NewV7()))
			if err != nil {
				t.Error(err)
			}
			got[i] = outcome.Command
		})
	}
	all.Wait()
	for _, command := range got {
		if command != got[0] || command == uuid.Nil {
			t.Fatalf("callers got different command ids: %v", got)
		}
	}
}

func TestOutcomesOutliveARotation(t *testing.T) {
	pool := pgtest.New(t)
	secrets := newSecrets(t, pool)
	o := postgres.NewOutcomes(pool, secrets)
	begin(t, o, "prn_a", "k1", "x")
	if err := o.Finish(t.Context(), "prn_a", "k1", 200, nil, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.RotateDataKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	replica := postgres.NewOutcomes(pool, newSecrets(t, pool))
	if got := begin(t, replica, "prn_a", "k1", "x"); string(got.Body) != "kept" {
		t.Errorf("got %+v", got)
	}
}

func TestAnswersDoNotMoveBetweenRows(t *testing.T) {
	pool := pgtest.New(t)
	o := postgres.NewOutcomes(pool, newSecrets(t, pool))
	begin(t, o, "prn_a", "k1", "x")
	begin(t, o, "prn_b", "k1", "x")
	if err := o.Finish(t.Context(), "prn_a", "k1", 200, nil, []byte("of a")); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE outcomes SET (status, answer) =
		(SELECT status, answer FROM outcomes WHERE principal = 'prn_a') WHERE principal = 'prn_b'`)
	_, err := o.Begin(t.Context(), "prn_b", "k1", []byte("x"), uuid.Must(uuid.NewV7()))
	wantCode(t, err, fault.Internal)
}

func TestOutcomesExpire(t *testing.T) {
	pool := pgtest.New(t)
	o := postgres.NewOutcomes(pool, newSecrets(t, pool))
	old := begin(t, o, "prn_a", "old", "x")
	young := begin(t, o, "prn_a", "young", "x")
	exec(t, pool, `UPDATE outcomes SET created_at = now() - interval '8 days' WHERE key = 'old'`)
	if n, err := o.Expire(t.Context(), time.Now().Add(-postgres.OutcomesKept)); err != nil || n != 1 {
		t.Errorf("%d expired, %v; want 1", n, err)
	}
	if begin(t, o, "prn_a", "old", "x").Command == old.Command {
		t.Error("the old key is still there")
	}
	if begin(t, o, "prn_a", "young", "x").Command != young.Command {
		t.Error("the young key is gone")
	}
}
