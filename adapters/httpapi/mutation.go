package httpapi

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// mutation prepares a request that changes something: its body is read, bounded and well-formed, and its command id is
// fixed; with an Idempotency-Key that was answered before, the answer is given again.
func (a *API) mutation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		body, canonical, err := takeBody(w, r)
		if err != nil {
			refuse(w, r, err)
			return
		}
		r.Body = readable(body)
		req := requestOf(r.Context())
		req.command = uuid.Must(uuid.NewV7())
		keys := r.Header.Values(contract.HeaderIdempotencyKey)
		switch len(keys) {
		case 0:
			next.ServeHTTP(w, r)
		case 1:
			if keys[0] == "" { // whoever sends the header wants a key: an empty one would protect nothing
				refuse(w, r, fault.Invalid(fault.Issue{Path: "header.Idempotency-Key", Message: "it is empty"}))
				return
			}
			a.once(w, r, keys[0], a.requestHash(r, canonical), next)
		default:
			refuse(w, r, fault.Invalid(fault.Issue{Path: "header.Idempotency-Key", Message: "given more than once"}))
		}
	})
}

// once serves a request under its key: the kept answer, or a fresh one under the command id of the first try.
func (a *API) once(w http.ResponseWriter, r *http.Request, key string, hash []byte, next http.Handler) {
	req := requestOf(r.Context())
	who := req.who.Actor.Principal.String()
	known, err := a.outcomes.Begin(r.Context(), who, key, hash, req.command)
	if err != nil {
		refuse(w, r, readFault(err))
		return
	}
	if known.Done {
		replay(w, known)
		return
	}
	req.command = known.Command
	kept := &kept{header: http.Header{}, status: http.StatusOK}
	next.ServeHTTP(kept, r)
	if final(kept.status) {
		a.keep(r.Context(), who, key, kept)
	}
	kept.send(w)
}

// keep stores an answer before it is sent. Where it can't be stored, the caller still gets it: the same key again finds
// what was done by its command id.
func (a *API) keep(ctx context.Context, who, key string, answer *kept) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := a.outcomes.Finish(ctx, who, key, answer.status, answer.header, answer.body.Bytes()); err != nil {
		a.log.WarnContext(ctx, "an answer could not be kept", "requestId", requestOf(ctx).id, "error", causes(err))
	}
}

// final tells whether an answer is the outcome of its request, to be given again for the same key: success, and every
// verdict on the request or on the state it met. What says that it was not looked at (a credential, a limit) is not, and
// neither is a failure of the server, which may hide a success.
func final(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status >= 200 && status < 500
}

// requestHash tells requests apart: method, path, If-Match and the canonical body, each after its length. It is keyed,
// since a body may hold a short secret that the hash would otherwise let one guess.
func (a *API) requestHash(r *http.Request, canonical []byte) []byte {
	h := hmac.New(sha256.New, a.requestKey)
	var size [8]byte
	for _, part := range [][]byte{
		[]byte(r.Method), []byte(r.URL.EscapedPath()), []byte(r.Header.Get("If-Match")), canonical,
	} {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

func replay(w http.ResponseWriter, o Outcome) {
	for k, values := range o.Header {
		w.Header()[k] = values
	}
	w.Header().Set(contract.HeaderReplayed, "true")
	w.WriteHeader(o.Status)
	_, _ = w.Write(o.Body) // a caller that has gone is told nothing
}

// kept is an answer that is not sent yet.
type kept struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

// Header are the headers of the answer.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader takes the first status.
func (k *kept) WriteHeader(status int) {
	if !k.wrote {
		k.status, k.wrote = status, true
	}
}

// Write takes a part of the body.
func (k *kept) Write(b []byte) (int, error) {
	k.wrote = true
	return k.body.Write(b)
}

// SetReadDeadline does nothing: the body is in memory.
func (k *kept) SetReadDeadline(time.Time) error { return nil }

func (k *kept) send(w http.ResponseWriter) {
	for name, values := range k.header {
		w.Header()[name] = values
	}
	w.WriteHeader(k.status)
	_, _ = w.Write(k.body.Bytes()) // a caller that has gone is told nothing
}

// formed is a JSON body that was checked: it fits no other type of Go by accident.
func formed(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return errors.New("the value at " + mismatch.Field + " is out of range")
	}
	return errors.New("a value is out of range")
}
