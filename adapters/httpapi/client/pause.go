package client

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"time"
)

// The pauses between attempts: the first, and the most of one that the control plane did not ask for.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
	mostAsked  = 30 * time.Second // a Retry-After above it is the caller's to wait out
)

// pause grows by two with every attempt, with jitter so that many clients don't come back at once, and is at least what
// the control plane asked for.
func pause(attempt int, asked time.Duration) time.Duration {
	grown := min(firstPause<<min(attempt-1, 10), mostPause)
	jittered := grown/2 + rand.N(grown) //nolint:gosec // spreads load; nothing depends on it being unpredictable
	return max(jittered, asked)
}

// certificate tells a certificate that is not trusted: sending again changes nothing about it.
func certificate(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &untrusted)
}
