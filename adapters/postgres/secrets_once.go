package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// PutNew seals value under secretID unless a value is there already, which stays: of replicas that start together, one wins
// and the others read what it put. Errors: as Put.
func (s *Secrets) PutNew(ctx context.Context, secretID uuid.UUID, value []byte) (ref node.SecretRef, added bool, err error) {
	if len(value) > MaxSecretBytes {
		return "", false, fault.New(fault.InvalidInput, "a secret of %d bytes; the most is %d", len(value), MaxSecretBytes)
	}
	for {
		keyID, key, err := s.ring.currentKey(ctx, dataPurpose)
		if err != nil {
			return "", false, err
		}
		var current, inserted bool
		err = s.ring.pool.QueryRow(ctx, `
			WITH k AS (SELECT id FROM secret_keys WHERE id = $2 AND retired_at IS NULL FOR SHARE),
				i AS (INSERT INTO secrets (id, key_id, sealed) SELECT $1, id, $3 FROM k ON CONFLICT (id) DO NOTHING RETURNING id)
			SELECT EXISTS (SELECT FROM k), EXISTS (SELECT FROM i)`,
			secretID, keyID, seal(key, secretID[:], value)).Scan(&current, &inserted)
		if err != nil {
			return "", false, Fault(err)
		}
		if current {
			return refTo(secretID), inserted, nil
		}
		if err := s.ring.reload(ctx); err != nil { // another replica rotated the key
			return "", false, err
		}
	}
}
