package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/fault"
)

// keptRetired is how long a retired data key stays after nothing in the table secrets needs it: longer than anything
// that Seal made is kept.
const keptRetired = 30 * 24 * time.Hour

// rotateBatch is how many secrets one transaction of a rotation re-encrypts.
const rotateBatch = 200

// Rotation says what RotateDataKey did.
type Rotation struct {
	Key         uuid.UUID // the data key that is current now
	Resumed     bool      // an earlier rotation had not finished: no new key was made
	Reencrypted int       // secrets re-encrypted by this call
}

// RotateDataKey makes a new data key and re-encrypts every secret under it, in batches, while replicas go on reading
// and writing. After a crash the next call finishes what was begun instead of making another key. Retired keys that
// nothing needs any more are removed. Errors: INVALID_CONFIG where the store was rewrapped to another master key,
// UNAVAILABLE.
func (s *Secrets) RotateDataKey(ctx context.Context) (Rotation, error) {
	var done Rotation
	if err := pgx.BeginFunc(ctx, s.ring.pool, func(tx pgx.Tx) (err error) {
		done.Resumed, err = s.beginRotation(ctx, tx)
		return err
	}); err != nil {
		return done, Fault(err)
	}
	if err := s.ring.load(ctx); err != nil {
		return done, err
	}
	for {
		moved, err := s.reencrypt(ctx)
		done.Reencrypted += moved
		if err != nil {
			return done, err
		}
		if moved == 0 {
			break
		}
	}
	var err error
	if done.Key, _, err = s.ring.currentKey(ctx, dataPurpose); err != nil {
		return done, err
	}
	_, err = s.ring.pool.Exec(ctx, `
		DELETE FROM secret_keys k WHERE purpose = 'data' AND retired_at < now() - $1::interval
		AND NOT EXISTS (SELECT FROM secrets s WHERE s.key_id = k.id)`, keptRetired)
	if err != nil {
		return done, Fault(err)
	}
	return done, nil
}

// beginRotation retires the data key and makes the next, unless an earlier rotation is still unfinished.
func (s *Secrets) beginRotation(ctx context.Context, tx pgx.Tx) (resumed bool, err error) {
	var masterID string
	if err := lockKeys(ctx, tx); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `
		SELECT master_key_id, EXISTS (
			SELECT FROM secrets JOIN secret_keys k ON k.id = key_id WHERE k.retired_at IS NOT NULL)
		FROM secret_keys WHERE purpose = 'data' AND retired_at IS NULL`).Scan(&masterID, &resumed)
	if err != nil {
		return false, Fault(err)
	}
	if masterID != s.ring.master.ID() {
		return false, fault.New(fault.InvalidConfig, "the secret store was rewrapped to the master key %s", masterID).
			WithRemedy("restart with that master key")
	}
	if resumed {
		return true, nil
	}
	keyID := uuid.Must(uuid.NewV7())
	var batch pgx.Batch
	batch.Queue(`UPDATE secret_keys SET retired_at = now() WHERE purpose = 'data' AND retired_at IS NULL`)
	batch.Queue(`INSERT INTO secret_keys (id, purpose, master_key_id, wrapped) VALUES ($1, 'data', $2, $3)`,
		keyID, masterID, wrap(s.ring.master, keyID, newKey()))
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return false, Fault(err)
	}
	return false, nil
}

// reencrypt moves up to rotateBatch secrets from retired keys to the current one and says how many it moved.
func (s *Secrets) reencrypt(ctx context.Context) (moved int, err error) {
	err = pgx.BeginFunc(ctx, s.ring.pool, func(tx pgx.Tx) error {
		ids, keys, values, err := retiredSecrets(ctx, tx)
		if err != nil || len(ids) == 0 {
			return err
		}
		var current uuid.UUID
		err = tx.QueryRow(ctx,
			`SELECT id FROM secret_keys WHERE purpose = 'data' AND retired_at IS NULL FOR SHARE`).Scan(&current)
		if err != nil {
			return Fault(err)
		}
		key, err := s.ring.key(ctx, current)
		if err != nil {
			return err
		}
		for i, id := range ids {
			old, err := s.ring.key(ctx, keys[i])
			if err != nil {
				return err
			}
			value, err := open(old, id[:], values[i])
			if err != nil {
				return fault.Wrap(err, fault.Internal, "%s was changed outside the secret store", refTo(id)).
					WithRemedy("delete it, or restore it from a backup, then rotate again")
			}
			values[i] = seal(key, id[:], value)
		}
		if _, err = tx.Exec(ctx, `
			UPDATE secrets SET key_id = $1, sealed = moved.sealed
			FROM unnest($2::uuid[], $3::bytea[]) AS moved (id, sealed) WHERE secrets.id = moved.id`,
			current, ids, values); err != nil {
			return Fault(err)
		}
		moved = len(ids)
		return nil
	})
	if err != nil {
		return 0, Fault(err)
	}
	return moved, nil
}

// retiredSecrets locks the next secrets that are sealed under a retired key.
func retiredSecrets(ctx context.Context, tx pgx.Tx) (ids, keys []uuid.UUID, values [][]byte, err error) {
	rows, err := tx.Query(ctx, `
		SELECT id, key_id, sealed FROM secrets
		WHERE key_id IN (SELECT id FROM secret_keys WHERE retired_at IS NOT NULL)
		ORDER BY id LIMIT $1 FOR UPDATE`, rotateBatch)
	if err != nil {
		return nil, nil, nil, Fault(err)
	}
	var id, key uuid.UUID
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &sealed}, func() error {
		ids, keys, values = append(ids, id), append(keys, key), append(values, sealed)
		sealed = nil
		return nil
	})
	if err != nil {
		return nil, nil, nil, Fault(err)
	}
	return ids, keys, values, nil
}

// RewrapMaster wraps every key of the store under another master key, in one transaction, and says how many. Replicas
// that run go on with the keys they hold; they need the new master key at their next start, and before the next
// rotation. Keys that are under the new one already are left, so a retry is harmless. Errors: INVALID_CONFIG where a
// key is under neither, UNAVAILABLE.
func RewrapMaster(ctx context.Context, pool *pgxpool.Pool, from, to MasterKey) (rewrapped int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := lockKeys(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT id, master_key_id, wrapped FROM secret_keys WHERE master_key_id <> $1`, to.ID())
		if err != nil {
			return Fault(err)
		}
		var batch pgx.Batch
		var id uuid.UUID
		var masterID string
		var wrapped []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &masterID, &wrapped}, func() error {
			key, err := unwrap(from, masterID, id, wrapped)
			if err != nil {
				return err
			}
			batch.Queue(`UPDATE secret_keys SET master_key_id = $2, wrapped = $3 WHERE id = $1`, id, to.ID(), wrap(to, id, key))
			return nil
		})
		if err != nil {
			return err
		}
		rewrapped = batch.Len()
		return tx.SendBatch(ctx, &batch).Close()
	})
	return rewrapped, Fault(err)
}

// lockKeys lets one rotation or rewrapping run at a time. Reading keys and sealing values goes on.
func lockKeys(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `LOCK TABLE secret_keys IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return Fault(err)
	}
	return nil
}
