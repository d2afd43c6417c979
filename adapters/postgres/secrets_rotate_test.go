package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/pgtest"
)

func TestRotateDataKey(t *testing.T) {
	pool := pgtest.New(t)
	s, replica := newSecrets(t, pool), newSecrets(t, pool)
	_, ref := put(t, s, "before")
	again, overwritten := put(t, s, "to be overwritten")
	sealed, err := s.Seal(t.Context(), "outcome", nil, []byte("answer"))
	if err != nil {
		t.Fatal(err)
	}
	command := uuid.Must(uuid.NewV7())
	token := s.Mint(command)

	done, err := s.RotateDataKey(t.Context())
	if err != nil || done.Reencrypted != 2 || done.Resumed {
		t.Fatalf("got %+v, %v; want two secrets re-encrypted", done, err)
	}
	if _, err := s.Put(t.Context(), again, []byte("overwritten")); err != nil {
		t.Fatal(err)
	}
	_, late := put(t, replica, "after, by a replica that knows only the old key")
	for _, store := range []*postgres.Secrets{s, replica, newSecrets(t, pool)} {
		wantSecret(t, store, ref, "before")
		wantSecret(t, store, overwritten, "overwritten")
		wantSecret(t, store, late, "after, by a replica that knows only the old key")
		if answer, err := store.Open(t.Context(), "outcome", nil, sealed); err != nil || string(answer) != "answer" {
			t.Errorf("what was sealed before: %q, %v", answer, err)
		}
		if store.Mint(command) != token {
			t.Error("the rotation changed a token")
		}
	}
	if old := exec(t, pool, `SELECT FROM secrets WHERE key_id <> $1`, done.Key); old != 0 {
		t.Errorf("%d secrets are still under the old key", old)
	}
}

func TestRotationGoesOnAfterACrash(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	refs := map[node.SecretRef]string{}
	var newest uuid.UUID
	for i := range 450 {
		value := fmt.Sprint("value ", i)
		secretID, ref := put(t, s, value)
		refs[ref], newest = value, secretID
	}
	last := uuid.Max
	exec(t, pool, `INSERT INTO secrets SELECT $1, key_id, '\x00' FROM secrets LIMIT 1`, last)

	broken, err := s.RotateDataKey(t.Context()) // stops at the row that can't be opened, in the third batch
	wantCode(t, err, fault.Internal)
	if broken.Reencrypted != 400 {
		t.Errorf("%d secrets were re-encrypted before the stop, want 400", broken.Reencrypted)
	}
	for ref, value := range refs {
		wantSecret(t, s, ref, value)
	}
	exec(t, pool, `DELETE FROM secrets WHERE id = $1`, last)
	ref, err := s.Put(t.Context(), newest, []byte("over one that waits to be re-encrypted"))
	if err != nil {
		t.Fatal(err)
	}
	refs[ref] = "over one that waits to be re-encrypted"
	wantSecret(t, s, ref, refs[ref])

	done, err := newSecrets(t, pool).RotateDataKey(t.Context())
	if err != nil || !done.Resumed || done.Reencrypted != 49 {
		t.Errorf("got %+v, %v; want the last 49 under the key that was made before", done, err)
	}
	for ref, value := range refs {
		wantSecret(t, s, ref, value)
	}
	if keys := exec(t, pool, `SELECT FROM secret_keys WHERE purpose = 'data'`); keys != 2 {
		t.Errorf("there are %d data keys, want 2", keys)
	}
}

func TestRotationWhileReplicasRun(t *testing.T) {
	pool := pgtest.New(t)
	stores := []*postgres.Secrets{newSecrets(t, pool), newSecrets(t, pool), newSecrets(t, pool)}
	stop, rotated := context.WithCancel(t.Context())
	defer rotated()
	var writers, rotators sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; stop.Err() == nil; i++ {
				store, reader := stores[(w+i)%3], stores[(w+i+1)%3]
				value := fmt.Sprint(w, i)
				ref, err := store.Put(t.Context(), uuid.Must(uuid.NewV7()), []byte(value))
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				if got, err := reader.Get(t.Context(), ref); err != nil || string(got) != value {
					t.Errorf("got %q, %v; want %q", got, err, value)
					return
				}
			}
		})
	}
	for r := range 2 {
		rotators.Go(func() {
			for range 5 {
				if _, err := stores[r].RotateDataKey(t.Context()); err != nil {
					t.Errorf("rotate: %v", err)
				}
			}
		})
	}
	rotators.Wait()
	rotated()
	writers.Wait()
	left := exec(t, pool, `SELECT FROM secrets JOIN secret_keys k ON k.id = key_id WHERE retired_at IS NOT NULL`)
	if left != 0 {
		t.Errorf("%d secrets are under retired keys", left)
	}
}

// TestRotationWaitsForAPutUnderWay holds a Put up between its choice of the key and its row, and rotates meanwhile.
func TestRotationWaitsForAPutUnderWay(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	secretID := uuid.Must(uuid.NewV7())
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Exec(t.Context(),
		`INSERT INTO secrets SELECT $1, id, '' FROM secret_keys WHERE purpose = 'data'`, secretID)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := s.Put(t.Context(), secretID, []byte("hunter2")); err != nil {
			t.Errorf("put: %v", err)
		}
	})
	waitForLocks(t, pool, 1, nil)
	rotated := make(chan struct{})
	work.Go(func() {
		defer close(rotated)
		if _, err := s.RotateDataKey(t.Context()); err != nil {
			t.Errorf("rotate: %v", err)
		}
	})
	waitForLocks(t, pool, 2, rotated)
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	work.Wait()
	left := exec(t, pool, `SELECT FROM secrets JOIN secret_keys k ON k.id = key_id WHERE retired_at IS NOT NULL`)
	if left != 0 {
		t.Errorf("%d secrets are under retired keys", left)
	}
}

// waitForLocks returns when n sessions of the database wait for a lock, or when done is closed.
func waitForLocks(t *testing.T, pool *pgxpool.Pool, n int, done <-chan struct{}) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-done:
			return
		default:
		}
		waiting := exec(t, pool,
			`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		if waiting >= int64(n) {
			return
		}
	}
	t.Fatalf("there are no %d sessions that wait for a lock", n)
}

func TestRetiredKeysGoWhenNothingNeedsThem(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	_, ref := put(t, s, "kept")
	for range 2 {
		if _, err := s.RotateDataKey(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, `UPDATE secret_keys SET retired_at = now() - interval '31 days'
		WHERE id = (SELECT id FROM secret_keys WHERE retired_at IS NOT NULL ORDER BY id LIMIT 1)`)
	if _, err := s.RotateDataKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := exec(t, pool, `SELECT FROM secret_keys WHERE purpose = 'data'`); keys != 3 {
		t.Errorf("there are %d data keys, want the current and two retired lately", keys)
	}
	wantSecret(t, s, ref, "kept")
}

func TestRewrapMaster(t *testing.T) {
	pool := pgtest.New(t)
	before, after := masterKey(t, keyBytes), masterKey(t, otherKey)
	s := newSecrets(t, pool)
	_, ref := put(t, s, "hunter2")
	command := uuid.Must(uuid.NewV7())

	_, err := postgres.RewrapMaster(t.Context(), pool, after, masterKey(t, "a third master key, of 32 bytes."))
	wantCode(t, err, fault.InvalidConfig)
	for _, want := range []int{2, 0} { // the second time nothing is left to do
		if n, err := postgres.RewrapMaster(t.Context(), pool, before, after); err != nil || n != want {
			t.Fatalf("rewrapped %d keys, %v; want %d", n, err, want)
		}
	}
	wantSecret(t, s, ref, "hunter2") // a replica that runs goes on
	_, err = s.RotateDataKey(t.Context())
	wantCode(t, err, fault.InvalidConfig) // but makes no key under the old master key

	_, err = postgres.NewSecrets(t.Context(), pool, before)
	wantCode(t, err, fault.InvalidConfig)
	renewed, err := postgres.NewSecrets(t.Context(), pool, after)
	if err != nil {
		t.Fatal(err)
	}
	wantSecret(t, renewed, ref, "hunter2")
	if renewed.Mint(command) != s.Mint(command) {
		t.Error("rewrapping changed a token")
	}
	if _, err := renewed.RotateDataKey(t.Context()); err != nil {
		t.Error(err)
	}
}

// A replica that was not restarted between rewrap and rotate can do nothing about it for its callers, who must not learn
// the keys' names either.
func TestRotateAfterRewrapUnderAReplica(t *testing.T) {
	pool := pgtest.New(t)
	before, after := masterKey(t, "the first master key of 32 bytes"), masterKey(t, "another master key, of 32 bytes.")
	replica, err := postgres.NewSecrets(t.Context(), pool, before)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.RewrapMaster(t.Context(), pool, before, after); err != nil {
		t.Fatal(err)
	}
	if err := replica.Check(t.Context()); err != nil {
		t.Errorf("nothing is wrong before the rotation: %v", err)
	}
	rotator, err := postgres.NewSecrets(t.Context(), pool, after)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rotator.RotateDataKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, ref := put(t, rotator, "sealed under the new key")
	_, putError := replica.Put(t.Context(), uuid.Must(uuid.NewV7()), []byte("x"))
	_, getError := replica.Get(t.Context(), ref)
	for does, err := range map[string]error{"put": putError, "get": getError, "check": replica.Check(t.Context())} {
		wantCode(t, err, fault.Unavailable)
		if strings.Contains(err.Error(), before.ID()) || strings.Contains(err.Error(), after.ID()) {
			t.Errorf("%s tells the caller of the keys: %v", does, err)
		}
		if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), after.ID()) {
			t.Errorf("%s keeps no cause for the log: %v", does, cause)
		}
	}
}
