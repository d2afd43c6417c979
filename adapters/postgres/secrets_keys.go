package postgres

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/fault"
)

// Purposes of the keys in secret_keys.
const (
	dataPurpose = "data" // seals values; rotated
	mintPurpose = "mint" // derives bearer tokens; stays
)

// keysFresh is how long a replica trusts what it knows of the current key without asking. It bounds how long another
// replica's rotation goes unnoticed by Seal; Put asks every time.
const keysFresh = time.Minute

// keyring holds the unwrapped keys of one replica.
type keyring struct {
	pool   *pgxpool.Pool
	master MasterKey

	mu      sync.Mutex
	keys    map[uuid.UUID]secretKey
	current map[string]uuid.UUID // by purpose
	read    time.Time
}

// openKeyring makes the first keys where there are none and unwraps all. A master key other than the one that wraps
// them is INVALID_CONFIG.
func openKeyring(ctx context.Context, pool *pgxpool.Pool, master MasterKey) (*keyring, error) {
	if master.key.bytes == nil {
		return nil, fault.New(fault.InvalidConfig, "there is no master key for the secret store")
	}
	data, mint := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	wrappedData, wrappedMint := wrap(master, data, newKey()), wrap(master, mint, newKey())
	// Both rows in one statement and in one order: whoever wins the first wins the second, under one master key.
	_, err := pool.Exec(ctx, `
		INSERT INTO secret_keys (id, purpose, master_key_id, wrapped)
		VALUES ($1, 'data', $5, $2), ($3, 'mint', $5, $4)
		ON CONFLICT (purpose) WHERE retired_at IS NULL DO NOTHING`,
		data, wrappedData, mint, wrappedMint, master.ID())
	if err != nil {
		return nil, Fault(err)
	}
	r := &keyring{pool: pool, master: master, keys: map[uuid.UUID]secretKey{}, current: map[string]uuid.UUID{}}
	return r, r.load(ctx)
}

// load reads every key and unwraps those it does not know yet.
func (r *keyring) load(ctx context.Context) error {
	rows, err := r.pool.Query(ctx, `SELECT id, purpose, master_key_id, wrapped, retired_at IS NULL FROM secret_keys`)
	if err != nil {
		return Fault(err)
	}
	defer rows.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for rows.Next() {
		var id uuid.UUID
		var purpose, masterID string
		var wrapped []byte
		var current bool
		if err := rows.Scan(&id, &purpose, &masterID, &wrapped, &current); err != nil {
			return Fault(err)
		}
		if _, known := r.keys[id]; !known {
			key, err := unwrap(r.master, masterID, id, wrapped)
			if err != nil {
				return err
			}
			r.keys[id] = key
		}
		if current {
			r.current[purpose] = id
		}
	}
	if err := rows.Err(); err != nil {
		return Fault(err)
	}
	r.read = time.Now()
	return nil
}

// reload is load for a store that was open already: a master key that no longer fits is then not the caller's doing, nor
// for the caller to know. Errors: UNAVAILABLE.
func (r *keyring) reload(ctx context.Context) error {
	err := r.load(ctx)
	if fault.CodeOf(err) == fault.InvalidConfig {
		return fault.Wrap(err, fault.Unavailable, "the secret store can't be opened").
			WithRemedy("an operator must restart this replica with the new master key")
	}
	return err
}

// currentKey is the key of a purpose that new values are sealed under, not older than keysFresh.
func (r *keyring) currentKey(ctx context.Context, purpose string) (uuid.UUID, secretKey, error) {
	r.mu.Lock()
	stale := time.Since(r.read) > keysFresh
	r.mu.Unlock()
	if stale {
		if err := r.reload(ctx); err != nil {
			return uuid.Nil, secretKey{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.current[purpose]
	return id, r.keys[id], nil
}

// key finds a key by its id; one that this replica has not seen is looked for once.
func (r *keyring) key(ctx context.Context, id uuid.UUID) (secretKey, error) {
	for attempt := 0; ; attempt++ {
		r.mu.Lock()
		key, known := r.keys[id]
		r.mu.Unlock()
		if known {
			return key, nil
		}
		if attempt > 0 {
			return secretKey{}, fault.New(fault.Internal, "a sealed value names a key that no longer exists")
		}
		if err := r.reload(ctx); err != nil {
			return secretKey{}, err
		}
	}
}

func newKey() secretKey {
	raw := make([]byte, masterKeyBytes)
	_, _ = rand.Read(raw) // never fails: it ends the program instead
	return keyOf(raw)
}

// wrap seals a key of the store under the master key. Its id is additional data: a row can't stand in for another.
func wrap(master MasterKey, id uuid.UUID, key secretKey) []byte {
	return seal(master.key, wrapContext(id), key.bytes())
}

func unwrap(master MasterKey, masterID string, id uuid.UUID, wrapped []byte) (secretKey, error) {
	if masterID != master.ID() {
		return secretKey{}, fault.New(fault.InvalidConfig,
			"the secret store is sealed under the master key %s, and the one given is %s", masterID, master.ID()).
			WithRemedy("start with the master key " + masterID + ", or rewrap the store from it to the new one")
	}
	key, err := open(master.key, wrapContext(id), wrapped)
	if err != nil || len(key) != masterKeyBytes {
		return secretKey{}, fault.Wrap(err, fault.InvalidConfig, "key %s of the secret store is damaged", id).
			WithRemedy("restore the table secret_keys from a backup")
	}
	return keyOf(key), nil
}

func wrapContext(id uuid.UUID) []byte { return append([]byte("metal-wrapped-key-1:"), id[:]...) }

// derive makes an independent key for one purpose (RFC 5869), so that no key is used in two ways.
func derive(key secretKey, purpose string) secretKey {
	derived, err := hkdf.Key(sha256.New, key.bytes(), nil, "metal-1:"+purpose, masterKeyBytes)
	if err != nil { // only a length beyond 255 hashes
		panic(err)
	}
	return keyOf(derived)
}

// seal is AES-256-GCM with a random nonce in front (NIST SP 800-38D): 2^32 values a key are safe.
func seal(key secretKey, aad, plain []byte) []byte {
	return gcm(key).Seal(nil, nil, plain, aad) //nolint:gosec // G407: no nonce is given, the cipher draws one
}

func open(key secretKey, aad, sealed []byte) ([]byte, error) {
	return gcm(key).Open(nil, nil, sealed, aad)
}

func gcm(key secretKey) cipher.AEAD {
	block, err := aes.NewCipher(key.bytes())
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return aead
		}
	}
	panic(err) // only a key of another length than 32 bytes
}
