package httpapi

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/ratelimit"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
)

// Why a credential was refused, for the log and the observer.
const (
	refusedMissing   = "missing"
	refusedMalformed = "malformed"
	refusedInvalid   = "invalid"
	refusedLimited   = "limited"
)

// The bounds of failed attempts: a burst, then one each refill, by client address.
const (
	attemptBurst  = 20
	attemptRefill = time.Second
	mostAddresses = 8192
)

// authenticated lets only callers with a valid bearer token through. A token in the URL is never looked at.
func (a *API) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, reason := bearerToken(r.Header)
		if reason == refusedMissing {
			a.observer.Refused(reason)
			refuse(w, r, unauthenticated("a bearer token is needed"))
			return
		}
		hash := commands.TokenHash(token)
		who := a.tokens.cached(hash)
		if who == nil {
			var err error
			if who, err = a.attempt(r, hash, reason); err != nil {
				refuse(w, r, err)
				return
			}
		}
		requestOf(r.Context()).who = who
		next.ServeHTTP(w, r)
	})
}

// attempt looks a credential up that is not known yet, and counts those that are not accepted against the address. A
// valid one is let through whatever others at its address do: behind one address there may be many callers.
func (a *API) attempt(r *http.Request, hash, reason string) (*Identity, error) {
	if reason == "" {
		who, err := a.tokens.lookUp(r.Context(), hash)
		if err == nil {
			return who, nil
		}
		if fault.CodeOf(err) != fault.Unauthenticated {
			return nil, readFault(err)
		}
		reason = refusedInvalid
	}
	address, now := ratelimit.Address(r.RemoteAddr), a.clock()
	if err := a.attempts.Check(address, now, "too many failed attempts from this address"); err != nil {
		a.refusedCredential(r, refusedLimited)
		return nil, err
	}
	a.attempts.Spend(address, now)
	a.refusedCredential(r, reason)
	return nil, unauthenticated("the token is not valid")
}

func (a *API) refusedCredential(r *http.Request, reason string) {
	a.observer.Refused(reason)
	a.log.LogAttrs(r.Context(), slog.LevelWarn, "credential refused", slog.String("reason", reason),
		slog.String("address", ratelimit.Address(r.RemoteAddr).String()), slog.String("requestId", requestOf(r.Context()).id))
}

func unauthenticated(text string) error { return fault.New(fault.Unauthenticated, "%s", text) }

// maxToken bounds what is hashed.
const maxToken = 512

// bearerToken reads the one Authorization header (RFC 6750, section 2.1). reason is empty where it holds a token.
func bearerToken(h http.Header) (token, reason string) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", refusedMissing
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", refusedMalformed
	}
	return token, ""
}

// readFault is what a caller is told of a read that failed: whatever has no code was the store's doing.
func readFault(err error) error {
	if err == nil || fault.CodeOf(err) != fault.Internal {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "the read models could not be read")
}

// writeTimeout bounds one write to a caller that takes nothing.
const writeTimeout = 10 * time.Second
