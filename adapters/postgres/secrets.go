package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// MaxSecretBytes bounds one value of the secret store: rendered user data is the largest.
const MaxSecretBytes = 1 << 20

// secretScheme is what a reference to a secret begins with.
const secretScheme = "secret:"

// Secrets keeps values sealed with AES-256-GCM under a data key, which a master key outside the database wraps. Only
// references (secret:<uuid>) leave it. Safe for concurrent use; any number of replicas may share one database.
type Secrets struct {
	ring *keyring
	mint secretKey
	sign secretKey // seed of the key that signs the head of the log
	hash secretKey // keys the hashes of requests
}

// NewSecrets opens the store and makes its first keys where there are none. Errors: INVALID_CONFIG for a master key
// other than the one that the store is sealed under, UNAVAILABLE.
func NewSecrets(ctx context.Context, pool *pgxpool.Pool, master MasterKey) (*Secrets, error) {
	ring, err := openKeyring(ctx, pool, master)
	if err != nil {
		return nil, err
	}
	_, key, err := ring.currentKey(ctx, mintPurpose)
	if err != nil {
		return nil, err
	}
	return &Secrets{
		ring: ring, mint: derive(key, "bearer-token"), sign: derive(key, "log-head"), hash: derive(key, "request-hash"),
	}, nil
}

// Check reads the store's keys, as the next rotation makes every replica do. Errors: UNAVAILABLE, with the cause where the
// store was rewrapped to another master key and rotated since.
func (s *Secrets) Check(ctx context.Context) error { return s.ring.reload(ctx) }

// Put seals value under secretID and gives its reference. The same id again overwrites, so a retry is harmless. Errors:
// INVALID_INPUT for a value above MaxSecretBytes, UNAVAILABLE.
func (s *Secrets) Put(ctx context.Context, secretID uuid.UUID, value []byte) (node.SecretRef, error) {
	return s.put(ctx, secretID, value, nil)
}

// put keeps a value until Expire is called after a time; nil: until it is deleted.
func (s *Secrets) put(ctx context.Context, secretID uuid.UUID, value []byte, until *time.Time) (node.SecretRef, error) {
	if len(value) > MaxSecretBytes {
		return "", fault.New(fault.InvalidInput, "a secret of %d bytes; the most is %d", len(value), MaxSecretBytes)
	}
	for {
		keyID, key, err := s.ring.currentKey(ctx, dataPurpose)
		if err != nil {
			return "", err
		}
		// FOR SHARE holds a rotation back until this row is there to be re-encrypted.
		done, err := s.ring.pool.Exec(ctx, `
			INSERT INTO secrets (id, key_id, sealed, expires_at)
			SELECT $1, id, $3, $4 FROM secret_keys WHERE id = $2 AND retired_at IS NULL FOR SHARE
			ON CONFLICT (id) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed, expires_at = excluded.expires_at`,
			secretID, keyID, seal(key, secretID[:], value), until)
		if err != nil {
			return "", Fault(err)
		}
		if done.RowsAffected() == 1 {
			return refTo(secretID), nil
		}
		if err := s.ring.reload(ctx); err != nil { // another replica rotated the key
			return "", err
		}
	}
}

// Get opens the value behind ref. Errors: NOT_FOUND, INVALID_INPUT for what is no reference, INTERNAL for a row that
// was changed outside the store, UNAVAILABLE.
func (s *Secrets) Get(ctx context.Context, ref node.SecretRef) ([]byte, error) {
	secretID, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	var keyID uuid.UUID
	var sealed []byte
	err = s.ring.pool.QueryRow(ctx, `SELECT key_id, sealed FROM secrets WHERE id = $1`, secretID).Scan(&keyID, &sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "%s does not exist", refTo(secretID))
	}
	if err != nil {
		return nil, Fault(err)
	}
	key, err := s.ring.key(ctx, keyID)
	if err != nil {
		return nil, err
	}
	value, err := open(key, secretID[:], sealed)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "%s was changed outside the secret store", refTo(secretID))
	}
	return value, nil
}

// Delete removes the value behind ref; one that is not there is success. Errors: INVALID_INPUT for what is no
// reference, UNAVAILABLE.
func (s *Secrets) Delete(ctx context.Context, ref node.SecretRef) error {
	secretID, err := parseRef(ref)
	if err != nil {
		return err
	}
	if _, err := s.ring.pool.Exec(ctx, `DELETE FROM secrets WHERE id = $1`, secretID); err != nil {
		return Fault(err)
	}
	return nil
}

// sealedFormat is the first byte of what Seal makes, before the key's id.
const sealedFormat = 1

// Seal encrypts data that is kept elsewhere. purpose separates uses: what was sealed for one does not open for another.
// aad is what the data belongs to; Open needs the same. It can be opened for at least keptRetired after the next
// rotation. Errors: UNAVAILABLE, when the current key has to be looked up.
func (s *Secrets) Seal(ctx context.Context, purpose string, aad, data []byte) ([]byte, error) {
	keyID, key, err := s.ring.currentKey(ctx, dataPurpose)
	if err != nil {
		return nil, err
	}
	head := append([]byte{sealedFormat}, keyID[:]...)
	return append(head, seal(derive(key, "seal:"+purpose), aad, data)...), nil
}

// Open decrypts what Seal made for the same purpose and aad. Errors: INTERNAL for anything else, UNAVAILABLE.
func (s *Secrets) Open(ctx context.Context, purpose string, aad, sealed []byte) ([]byte, error) {
	const head = 1 + len(uuid.UUID{})
	if len(sealed) < head || sealed[0] != sealedFormat {
		return nil, fault.New(fault.Internal, "a sealed value is not of a known form")
	}
	key, err := s.ring.key(ctx, uuid.UUID(sealed[1:head]))
	if err != nil {
		return nil, err
	}
	data, err := open(derive(key, "seal:"+purpose), aad, sealed[head:])
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "a sealed value was changed, or belongs elsewhere")
	}
	return data, nil
}

// Mint derives the bearer token that the creation with this command id hands out: "metal_" and 256 bits in lower-case
// base32.
//
// A token is shown once and only its hash is stored, so an answer that was lost on its way, or a crash between append
// and answer, would leave a token that nobody knows. Deriving it from the command id gives a retry of the same command
// the same token without ever storing it. The key it is derived from is therefore not rotated with the data key.
// Command ids must not be chosen by callers: use those that the outcome store hands out.
func (s *Secrets) Mint(command uuid.UUID) string {
	mac := hmac.New(sha256.New, s.mint.bytes())
	mac.Write(command[:])
	return "metal_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(mac.Sum(nil)))
}

func refTo(secretID uuid.UUID) node.SecretRef {
	return node.SecretRef(secretScheme + secretID.String())
}

// parseRef never repeats what it was given: a caller may have put the secret itself there.
func parseRef(ref node.SecretRef) (uuid.UUID, error) {
	text, found := strings.CutPrefix(string(ref), secretScheme)
	secretID, err := uuid.Parse(text)
	if !found || err != nil || secretID.String() != text {
		return uuid.Nil, fault.New(fault.InvalidInput, "a reference to a secret has the form secret:<uuid>")
	}
	return secretID, nil
}
