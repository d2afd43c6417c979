package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/node"
)

// PutUntil is Put for a value that is of no use after a time: Expire forgets it then. The same id again replaces the time, too.
func (s *Secrets) PutUntil(ctx context.Context, secretID uuid.UUID, value []byte, until time.Time) (node.SecretRef, error) {
	return s.put(ctx, secretID, value, &until)
}

// Expire forgets the secrets whose time is over, by the database's clock, and says how many. One that a rotation has in its
// hands is left for the next time. Errors: UNAVAILABLE.
func (s *Secrets) Expire(ctx context.Context) (int64, error) {
	done, err := s.ring.pool.Exec(ctx, `DELETE FROM secrets WHERE id IN (
		SELECT id FROM secrets WHERE expires_at < now() ORDER BY id FOR UPDATE SKIP LOCKED)`)
	return done.RowsAffected(), Fault(err)
}
