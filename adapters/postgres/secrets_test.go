package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/pgtest"
)

const otherKey = "another master key of 32 bytes.."

func newSecrets(t *testing.T, pool *pgxpool.Pool) *postgres.Secrets {
	t.Helper()
	s, err := postgres.NewSecrets(t.Context(), pool, masterKey(t, keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *postgres.Secrets, value string) (uuid.UUID, node.SecretRef) {
	t.Helper()
	secretID := uuid.Must(uuid.NewV7())
	ref, err := s.Put(t.Context(), secretID, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return secretID, ref
}

func wantSecret(t *testing.T, s *postgres.Secrets, ref node.SecretRef, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), ref)
	if err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v; want %q", ref, got, err, want)
	}
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	done, err := pool.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return done.RowsAffected()
}

func TestSecretsKeepValues(t *testing.T) {
	s := newSecrets(t, pgtest.New(t))
	largest := strings.Repeat("x", postgres.MaxSecretBytes)
	for _, value := range []string{"", "hunter2", "12345678", "p\x00ä\n'\"$", largest} {
		secretID, ref := put(t, s, value)
		if want := "secret:" + secretID.String(); string(ref) != want {
			t.Errorf("got reference %s, want %s", ref, want)
		}
		wantSecret(t, s, ref, value)
	}
	secretID, ref := put(t, s, "first")
	if _, err := s.Put(t.Context(), secretID, []byte("second")); err != nil {
		t.Fatal(err)
	}
	wantSecret(t, s, ref, "second")
	for range 2 { // deleting again is no error
		if err := s.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Get(t.Context(), ref)
	wantCode(t, err, fault.NotFound)
	_, err = s.Put(t.Context(), secretID, make([]byte, postgres.MaxSecretBytes+1))
	wantCode(t, err, fault.InvalidInput)
}

func TestSecretsRefuseWhatIsNoReference(t *testing.T) {
	s := newSecrets(t, pgtest.New(t))
	secretID, _ := put(t, s, "hunter2")
	for _, ref := range []node.SecretRef{
		"", "hunter2", "secret:", "secret:hunter2", node.SecretRef(secretID.String()),
		node.SecretRef("secret:" + strings.ToUpper(secretID.String())), node.SecretRef("secret:{" + secretID.String() + "}"),
	} {
		_, err := s.Get(t.Context(), ref)
		wantCode(t, err, fault.InvalidInput)
		wantCode(t, s.Delete(t.Context(), ref), fault.InvalidInput)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows what it was given: %v", err)
		}
	}
}

func TestSecretsNoticeRowsThatWereChanged(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	mine, mineRef := put(t, s, "mine")
	theirs, _ := put(t, s, "theirs")
	exec(t, pool, `UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE id = $2) WHERE id = $1`, mine, theirs)
	_, err := s.Get(t.Context(), mineRef)
	wantCode(t, err, fault.Internal)

	bad, badRef := put(t, s, "flipped")
	exec(t, pool, `UPDATE secrets SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) WHERE id = $1`, bad)
	_, err = s.Get(t.Context(), badRef)
	wantCode(t, err, fault.Internal)
}

func TestSecretsAreNowhereInClear(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	const planted = "correct-horse-battery-staple"
	for range 3 {
		put(t, s, planted)
	}
	token := s.Mint(uuid.Must(uuid.NewV7()))
	var found, distinct int
	err := pool.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE position($1::bytea IN sealed) > 0), count(DISTINCT sealed) FROM secrets`,
		[]byte(planted)).Scan(&found, &distinct)
	if err != nil || found != 0 || distinct != 3 {
		t.Errorf("%d rows hold the value in clear, %d are distinct (%v); want 0 and 3", found, distinct, err)
	}
	dump := strings.ToLower(fmt.Sprintf("%+v %#v", s, s))
	for _, leak := range []string{planted, token, keyBytes, "34353637", "52 53 54", "0x34, 0x35"} {
		if strings.Contains(dump, leak) {
			t.Errorf("the store prints a secret: %s", dump)
		}
	}
}

func TestSecretsUnderAnotherMasterKey(t *testing.T) {
	pool := pgtest.New(t)
	newSecrets(t, pool)
	_, err := postgres.NewSecrets(t.Context(), pool, masterKey(t, otherKey))
	wantCode(t, err, fault.InvalidConfig)
	for _, key := range []string{keyBytes, otherKey} {
		if fingerprint := masterKey(t, key).ID(); err != nil && !strings.Contains(err.Error(), fingerprint) {
			t.Errorf("the error does not name %s: %v", fingerprint, err)
		}
	}
	_, err = postgres.NewSecrets(t.Context(), pool, postgres.MasterKey{})
	wantCode(t, err, fault.InvalidConfig)
}

func TestSecretsWithADamagedKeyRow(t *testing.T) {
	pool := pgtest.New(t)
	newSecrets(t, pool)
	exec(t, pool, `UPDATE secret_keys SET wrapped = set_byte(wrapped, 15, get_byte(wrapped, 15) # 1)`)
	_, err := postgres.NewSecrets(t.Context(), pool, masterKey(t, keyBytes))
	wantCode(t, err, fault.InvalidConfig)
}

func TestReplicasAgreeOnTheFirstKeys(t *testing.T) {
	pool := pgtest.New(t)
	const replicas = 8
	stores := make([]*postgres.Secrets, replicas)
	var all sync.WaitGroup
	for i := range replicas {
		all.Go(func() {
			s, err := postgres.NewSecrets(context.Background(), pool, masterKey(t, keyBytes))
			if err != nil {
				t.Error(err)
			}
			stores[i] = s
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	command := uuid.Must(uuid.NewV7())
	for _, s := range stores {
		_, ref := put(t, s, "shared")
		for _, other := range stores {
			wantSecret(t, other, ref, "shared")
			if s.Mint(command) != other.Mint(command) {
				t.Fatal("replicas mint different tokens for one command")
			}
		}
	}
	if keys := exec(t, pool, `SELECT FROM secret_keys`); keys != 2 {
		t.Errorf("%d keys were made, want one of each purpose", keys)
	}
}

func TestReplicasWithDifferentMasterKeysOnAnEmptyStore(t *testing.T) {
	pool := pgtest.New(t)
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			key := masterKey(t, []string{keyBytes, otherKey}[i%2])
			_, errs[i] = postgres.NewSecrets(context.Background(), pool, key)
		})
	}
	all.Wait()
	for i, err := range errs {
		if (err == nil) != (errs[i%2] == nil) || (err != nil && fault.CodeOf(err) != fault.InvalidConfig) {
			t.Errorf("replica %d: %v", i, err)
		}
	}
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("want exactly one master key to win, got %v and %v", errs[0], errs[1])
	}
}

func TestMintIsDeterministicAndUnguessable(t *testing.T) {
	s := newSecrets(t, pgtest.New(t))
	form := regexp.MustCompile(`^metal_[a-z2-7]{52}$`)
	seen := map[string]bool{}
	for range 100 {
		command := uuid.Must(uuid.NewV7())
		token := s.Mint(command)
		if !form.MatchString(token) || seen[token] || token != s.Mint(command) {
			t.Fatalf("token %s: malformed, doubled or not repeatable", token)
		}
		seen[token] = true
	}
	t.Run("another installation under the same master key", func(t *testing.T) {
		command := uuid.Must(uuid.NewV7())
		if s.Mint(command) == newSecrets(t, pgtest.New(t)).Mint(command) {
			t.Error("it mints the same token")
		}
	})
}

func TestSealBindsPurposeAndContext(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	sealed, err := s.Seal(t.Context(), "outcome", []byte("row 1"), []byte("answer"))
	if err != nil || bytes.Contains(sealed, []byte("answer")) {
		t.Fatalf("got %x, %v", sealed, err)
	}
	got, err := newSecrets(t, pool).Open(t.Context(), "outcome", []byte("row 1"), sealed)
	if diff := cmp.Diff("answer", string(got)); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-1] ^= 1
	foreign := bytes.Clone(sealed)
	foreign[5] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another purpose": func() ([]byte, error) { return s.Open(t.Context(), "other", []byte("row 1"), sealed) },
		"another row":     func() ([]byte, error) { return s.Open(t.Context(), "outcome", []byte("row 2"), sealed) },
		"flipped bit":     func() ([]byte, error) { return s.Open(t.Context(), "outcome", []byte("row 1"), flipped) },
		"unknown key":     func() ([]byte, error) { return s.Open(t.Context(), "outcome", []byte("row 1"), foreign) },
		"cut short":       func() ([]byte, error) { return s.Open(t.Context(), "outcome", []byte("row 1"), sealed[:17]) },
		"empty":           func() ([]byte, error) { return s.Open(t.Context(), "outcome", []byte("row 1"), nil) },
	} {
		if data, err := open(); fault.CodeOf(err) != fault.Internal || data != nil {
			t.Errorf("%s: got %q, %v; want INTERNAL", name, data, err)
		}
	}
}

func TestSecretsWithoutADatabase(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	_, ref := put(t, s, "hunter2")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ended, ref); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's own error", err)
	}
	pool.Close()
	_, err := s.Get(t.Context(), ref)
	wantCode(t, err, fault.Unavailable)
}
