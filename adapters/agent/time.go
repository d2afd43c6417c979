package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// GatewayTime asks the gateway what time it is, without a certificate of one's own. A machine's clock may be years off, and
// with it every certificate: so the gateway is known by the CA's fingerprint alone, and its word counts within the time that
// its certificate is good for. A server that is not the gateway is an UNAUTHENTICATED one.
func GatewayTime(ctx context.Context, gateway, ca string) (time.Time, error) {
	l := newLink(Options{Gateway: gateway, CA: ca, Now: func() time.Time { return time.Time{} }}) // before any certificate was made
	defer l.close()
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodHead, gateway, nil)
	if err != nil {
		return time.Time{}, fault.Wrap(err, fault.InvalidConfig, "the gateway's URL is not valid")
	}
	answer, err := l.client.Do(ask)
	if errors.Is(err, errUntrusted) {
		return time.Time{}, fault.Wrap(err, fault.Unauthenticated, "the server is not the gateway: %v", errors.Unwrap(err))
	}
	if err != nil {
		return time.Time{}, unreachable(err)
	}
	_ = answer.Body.Close() // there is none
	told, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fault.Wrap(err, fault.Unavailable, "the gateway does not tell the time")
	}
	shown := answer.TLS.PeerCertificates[0]
	if told.Before(shown.NotBefore.Add(-time.Minute)) || told.After(shown.NotAfter) {
		return time.Time{}, fault.Wrap(fmt.Errorf("it is good from %v to %v", shown.NotBefore, shown.NotAfter), fault.Unavailable,
			"the gateway's certificate is not good at %s, its own time", told.Format(time.RFC3339))
	}
	return told, nil
}
