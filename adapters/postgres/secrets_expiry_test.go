package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/pgtest"
)

func TestSecretsExpire(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	putUntil := func(secretID uuid.UUID, value string, until time.Time) node.SecretRef {
		t.Helper()
		ref, err := s.PutUntil(t.Context(), secretID, []byte(value), until)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	over := putUntil(uuid.Must(uuid.NewV7()), "over", past)
	needed := putUntil(uuid.Must(uuid.NewV7()), "needed", future)
	longer := uuid.Must(uuid.NewV7())
	putUntil(longer, "again", past)
	again := putUntil(longer, "again", future)
	keptID := uuid.Must(uuid.NewV7())
	putUntil(keptID, "kept", past)
	kept, err := s.Put(t.Context(), keptID, []byte("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RotateDataKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(t.Context()); err != nil || n != 1 {
		t.Errorf("%d expired, %v; want 1", n, err)
	}
	_, err = s.Get(t.Context(), over)
	wantCode(t, err, fault.NotFound)
	wantSecret(t, s, needed, "needed")
	wantSecret(t, s, again, "again")
	wantSecret(t, s, kept, "kept")
}

// A rotation that has locked a secret is neither waited for nor cut short.
func TestSecretsExpireBesideARotation(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	secretID := uuid.Must(uuid.NewV7())
	if _, err := s.PutUntil(t.Context(), secretID, []byte("over"), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM secrets WHERE id = $1 FOR UPDATE`, secretID); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(t.Context()); err != nil || n != 0 {
		t.Errorf("while it is locked: %d expired, %v", n, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(t.Context()); err != nil || n != 1 {
		t.Errorf("afterwards: %d expired, %v", n, err)
	}
}
