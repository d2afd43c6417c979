package httpapi

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections/history"
)

func (a *API) audit() {
	stream(a, document{
		id: "copy-log", method: http.MethodGet, path: "/v1/audit/log", tag: "audit", gives: oneOf[contract.AuditEvent](),
		summary: "Copy the log, byte for byte, one event on each line",
		more: "Needs compute:audit:read on the root tenant. It ends at the head of the log as it was when the answer began; " +
			"a connection that breaks off before is to be resumed after the last position.",
	}, "application/x-ndjson", a.copyLog)
	if a.signer == nil {
		return
	}
	operate(a, document{
		id: "sign-head", method: http.MethodGet, path: "/v1/audit/head", tag: "audit", gives: oneOf[contract.AuditHead](),
		summary: "Check the whole log, and sign a digest over the end of every stream",
		more:    "Needs compute:audit:read on the root tenant. Reads the whole log; one at a time.",
	}, a.signHead)
}

type copyLog struct {
	After uint64 `query:"after" maximum:"9223372036854775807" doc:"the log position to begin after"`
}

func (a *API) copyLog(ctx context.Context, in *copyLog) (func(huma.Context), error) {
	if err := mayAuditAll(requestOf(ctx).who); err != nil {
		return nil, err
	}
	after := event.Position(in.After)
	if err := a.inLog(ctx, after, "query.after"); err != nil {
		return nil, err
	}
	head, err := a.store.Head(ctx)
	if err != nil {
		return nil, logFault(err)
	}
	if requestOf(ctx).head {
		return headersOf("application/x-ndjson"), nil
	}
	return func(hc huma.Context) {
		_, w := humachi.Unwrap(hc)
		if err := a.writeLog(hc.Context(), w, after, head); err != nil {
			panic(http.ErrAbortHandler) // the only way to tell a caller that what it has is not all
		}
	}, nil
}

// writeLog writes the events after one position up to another, a page at a time.
func (a *API) writeLog(ctx context.Context, w http.ResponseWriter, after, until event.Position) error {
	control := http.NewResponseController(w)
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) }() // of what the server writes at the end
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set(contract.HeaderPosition, until.String())
	w.Header().Set(contract.HeaderDense, strconv.FormatBool(dense(a.store)))
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, 64<<10)
	lines := json.NewEncoder(out)
	for after < until {
		events, head, err := stored{a.store}.ReadAll(ctx, after, nil, tailPage)
		if err != nil {
			return err
		}
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		for _, e := range events {
			if e.Position > until {
				break
			}
			if err := lines.Encode(auditEventOf(e)); err != nil {
				return err
			}
		}
		if head == after {
			return fmt.Errorf("the log ends at %s, before %s", head, until)
		}
		after = head
	}
	return out.Flush()
}

// stored is a log read from where it is stored, for the audit: past what a process remembers of it, and also where it
// cannot be decoded any more.
type stored struct{ event.Store }

// ReadAll reads what is stored where the log tells it apart.
func (s stored) ReadAll(ctx context.Context, after event.Position, types []string, limit int,
) ([]event.Recorded, event.Position, error) {
	r, ok := s.Store.(interface {
		ReadStored(context.Context, event.Position, int) ([]event.Recorded, event.Position, error)
	})
	if ok && len(types) == 0 {
		return r.ReadStored(ctx, after, limit)
	}
	return s.Store.ReadAll(ctx, after, types, limit)
}

// dense tells whether positions of the store rise by one, so that a gap is a removed event.
func dense(store event.Store) bool {
	d, ok := store.(interface{ DensePositions() bool })
	return ok && d.DensePositions()
}

func auditEventOf(e event.Recorded) contract.AuditEvent {
	return contract.AuditEvent{
		Position: uint64(e.Position), Stream: string(e.Stream), Version: uint64(e.Version), ID: e.ID.String(),
		Type: e.Type, Schema: e.Schema, Data: e.Data, Meta: e.RawMeta, Hash: e.Hash.String(),
	}
}

// signHead reads the whole log. Errors: INVALID_STATE where the log does not hold together: nothing is signed then.
func (a *API) signHead(ctx context.Context, _ *struct{}) (*answer, error) {
	if err := mayAuditAll(requestOf(ctx).who); err != nil {
		return nil, err
	}
	select {
	case a.auditing <- struct{}{}:
		defer func() { <-a.auditing }()
	default:
		return nil, fault.New(fault.RateLimited, "the whole log is being read for another caller").
			WithDetail(fault.RetryAfter, int(readPatience/time.Second))
	}
	found, err := history.VerifyAll(ctx, stored{a.store}, nil, nil)
	if err != nil {
		return nil, logFault(err)
	}
	if len(found.Problems) > 0 {
		return nil, fault.New(fault.InvalidState, "the log was changed: it does not hold together").
			WithDetail("problems", found.Problems).WithRemedy("compare with a copy kept elsewhere: `metalctl audit verify`")
	}
	return a.signed(ctx, found)
}

func (a *API) signed(ctx context.Context, found history.Audit) (*answer, error) {
	at := a.clock().UTC().Truncate(time.Second)
	text := headText(found, at)
	signature, key, err := a.signer.Sign(ctx, text)
	if err != nil {
		return nil, readFault(err)
	}
	fingerprint := sha256.Sum256(key)
	body, err := encode(contract.AuditHead{
		Position: uint64(found.Position), Dense: dense(a.store), Streams: len(found.Heads), Digest: found.Digest.String(), At: at,
		KeyID: hex.EncodeToString(fingerprint[:]), PublicKey: key, Signed: text, Signature: signature,
	})
	return &answer{Position: found.Position.String(), CacheControl: "no-store", Body: body}, err
}

// headText is what is signed: lines of a name and a value, in this order.
func headText(found history.Audit, at time.Time) []byte {
	return fmt.Appendf(nil, "metal-head-1\nposition %s\nevents %d\nstreams %d\ndigest %s\nat %s\n",
		found.Position, found.Events, len(found.Heads), found.Digest, at.Format(time.RFC3339))
}

// mayAuditAll refuses whoever may not audit every tenant.
func mayAuditAll(who *Identity) error {
	if who.Scope("compute:audit:read").All {
		return nil
	}
	return fault.New(fault.Forbidden, "the credential does not allow compute:audit:read on the root tenant").
		WithDetail("action", "compute:audit:read")
}
