package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/fault"
)

// OutcomesKept is how long the outcome of a request with an Idempotency-Key is kept.
const OutcomesKept = 7 * 24 * time.Hour

// MaxIdempotencyKey is the most characters that an Idempotency-Key may have.
const MaxIdempotencyKey = 255

// outcomePurpose separates sealed answers from everything else that is sealed.
const outcomePurpose = "outcome"

// Outcomes remembers what a request with an Idempotency-Key was given, so that the same request again gets the same. It
// has two parts. The command id, kept from the first call on, makes a retry collide in the log instead of happening
// twice, even after a crash between append and answer. The answer, kept once it is final, spares the retry from being
// decided again on a state that has moved on. Answers are sealed: that of a token's creation holds the token.
type Outcomes struct {
	pool   *pgxpool.Pool
	sealer *Secrets
}

// NewOutcomes keeps outcomes in the table outcomes, sealed by sealer.
func NewOutcomes(pool *pgxpool.Pool, sealer *Secrets) *Outcomes {
	return &Outcomes{pool: pool, sealer: sealer}
}

// Outcome is what is known of a request.
type Outcome struct {
	Command uuid.UUID // of the first request with the key
	Done    bool      // the rest is the answer it was given
	Status  int
	Header  http.Header
	Body    []byte
}

// answer is the sealed part of an outcome.
type answer struct {
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// Begin looks the key up in one round trip and takes it for the command id fresh if it is new for this principal. Two
// calls at once with one key get the same command id, and what they append collides. requestHash covers method, path
// and body. Errors: INVALID_INPUT for a malformed key, and for one that was used with another request; UNAVAILABLE.
func (o *Outcomes) Begin(
	ctx context.Context, principal, key string, requestHash []byte, fresh uuid.UUID,
) (Outcome, error) {
	if err := checkIdempotencyKey(key); err != nil {
		return Outcome{}, err
	}
	var known Outcome
	var hash, sealed []byte
	var status *int
	// The update changes nothing: it makes RETURNING give the row that is there, also one that was added a moment ago.
	err := o.pool.QueryRow(ctx, `
		INSERT INTO outcomes (principal, key, request_hash, command) VALUES ($1, $2, $3, $4)
		ON CONFLICT (principal, key) DO UPDATE SET key = excluded.key
		RETURNING request_hash, command, status, answer`,
		principal, key, requestHash, fresh).Scan(&hash, &known.Command, &status, &sealed)
	if err != nil {
		return Outcome{}, Fault(err)
	}
	if !bytes.Equal(hash, requestHash) {
		return Outcome{}, keyIssue("this key was used with another request; a new request needs a new key")
	}
	if status == nil {
		return known, nil
	}
	known.Done, known.Status = true, *status
	data, err := o.sealer.Open(ctx, outcomePurpose, outcomeContext(principal, key, *status), sealed)
	if err != nil {
		return Outcome{}, err
	}
	var given answer
	if err := json.Unmarshal(data, &given); err != nil {
		return Outcome{}, fault.Wrap(err, fault.Internal, "a stored answer can't be read")
	}
	known.Header, known.Body = given.Header, given.Body
	return known, nil
}

// Finish keeps the answer of a key that Begin took, in one round trip. The first answer stays. It is for answers that
// are final; others leave the key open, so that a retry is decided again under the same command id. Errors:
// UNAVAILABLE.
func (o *Outcomes) Finish(
	ctx context.Context, principal, key string, status int, header http.Header, body []byte,
) error {
	data, err := json.Marshal(answer{Header: header, Body: body})
	if err != nil {
		return fault.Wrap(err, fault.Internal, "an answer can't be stored")
	}
	sealed, err := o.sealer.Seal(ctx, outcomePurpose, outcomeContext(principal, key, status), data)
	if err != nil {
		return err
	}
	_, err = o.pool.Exec(ctx, `
		UPDATE outcomes SET status = $3, answer = $4 WHERE principal = $1 AND key = $2 AND status IS NULL`,
		principal, key, status, sealed)
	return Fault(err)
}

// Expire forgets the keys that were taken before a time, usually OutcomesKept ago, and says how many. Errors:
// UNAVAILABLE.
func (o *Outcomes) Expire(ctx context.Context, before time.Time) (int64, error) {
	done, err := o.pool.Exec(ctx, `DELETE FROM outcomes WHERE created_at < $1`, before)
	return done.RowsAffected(), Fault(err)
}

func checkIdempotencyKey(key string) error {
	if key == "" || len(key) > MaxIdempotencyKey {
		return keyIssue("a key has 1 to " + strconv.Itoa(MaxIdempotencyKey) + " characters")
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return keyIssue("a key holds visible ASCII characters only")
		}
	}
	return nil
}

func keyIssue(message string) error {
	return fault.Invalid(fault.Issue{Path: "header.Idempotency-Key", Message: message})
}

// outcomeContext binds an answer to its row: principal, key and status. No two rows share it, since a key holds no
// space.
func outcomeContext(principal, key string, status int) []byte {
	return []byte(key + " " + strconv.Itoa(status) + " " + principal)
}
