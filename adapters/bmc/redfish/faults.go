package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
)

// remedies says what to do next, per reason.
var remedies = map[bmc.Reason]string{
	bmc.CredentialsRejected:    "give the right ones: metalctl set-bmc; further attempts are held back so that the account is not locked",
	bmc.CertificateChanged:     "find out why the certificate changed; if it was renewed, trust the new one: metalctl trust-bmc",
	bmc.CertificateUntrusted:   "give the CA that signed it, pin its fingerprint, or choose the TLS mode insecure",
	bmc.AmbiguousSystem:        "use a controller with one whole machine behind it; the details list the systems of this one",
	bmc.SystemNotFound:         "find out whether another machine answers at the address; one with a new board is abandoned and enrolled anew",
	bmc.Unsupported:            "use another way: this controller does not offer it",
	bmc.BootOverrideNotApplied: "look at the controller's own boot settings and pending jobs, then retry",
	bmc.PowerNotReached:        "look at the machine's console and its controller's log, then retry",
	bmc.MediaNotAttached:       "check that the controller reaches the image's server, then retry",
	bmc.TaskFailed:             "read the controller's message in the details, then retry",
	bmc.NotReady:               "retry after the time in the details",
	bmc.BadAnswer:              "update or restart the controller; its answer is not usable",
	bmc.Refused:                "read the controller's message in the details",
}

func broken(r bmc.Reason, format string, args ...any) *fault.Error {
	return fault.New(fault.DriverError, format, args...).WithRemedy(remedies[r]).WithDetail("reason", string(r))
}

// reasonOf is the reason that err carries, if any.
func reasonOf(err error) bmc.Reason {
	var e *fault.Error
	if !errors.As(err, &e) {
		return ""
	}
	r, _ := e.Details["reason"].(string)
	return bmc.Reason(r)
}

// statusOf is the status of the answer behind err; zero where there was none.
func statusOf(err error) int {
	var e *fault.Error
	if !errors.As(err, &e) {
		return 0
	}
	n, _ := e.Details["status"].(int)
	return n
}

// notReady asks the caller to come back: the wait is its to make.
func notReady(after time.Duration, format string, args ...any) *fault.Error {
	return broken(bmc.NotReady, format, args...).WithDetail("retryAfter", int(math.Ceil(after.Seconds())))
}

// refusal is the fault of an answer that is an error, with the controller's own words, cleaned of secrets.
func (c *conn) refusal(r request, a *answer) *fault.Error {
	e := broken(bmc.Refused, "the controller answers %d to %s %s", a.status, r.method, r.path)
	switch a.status {
	case 401:
		e = rejected()
	case 503, 504, 429:
		e = notReady(max(a.retryAfter(c.d.o.Now()), 5*time.Second), "the controller is not ready: it answers %d to %s %s",
			a.status, r.method, r.path)
	}
	e.WithDetail("status", a.status)
	if id, text := c.words(a); id != "" || text != "" {
		e.WithDetail("messageId", id).WithDetail("message", text)
	}
	return e
}

// words is the first message of an answer, shortened, without the password or the token.
func (c *conn) words(a *answer) (id, text string) {
	for _, m := range a.messages() {
		if m.id == "" && m.text == "" {
			continue
		}
		return c.clean(m.id), c.clean(m.text)
	}
	return "", ""
}

func (c *conn) clean(s string) string {
	for _, secret := range c.secrets() {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
	}
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

// lost is the fault of a request that got no answer.
func (c *conn) lost(ctx context.Context, r request, err error) error {
	var known *fault.Error
	var pin *pinError
	var dial *net.OpError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &pin):
		return broken(bmc.CertificateChanged, "the controller's certificate is not the pinned one; it is now %s", pin.got).
			WithDetail("wanted", pin.want).WithDetail("found", pin.got)
	case untrusted(err):
		return broken(bmc.CertificateUntrusted, "the controller's certificate is not trusted")
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.Is(err, errTooLarge):
		return broken(bmc.BadAnswer, "the answer to %s %s is too large", r.method, r.path)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, "the controller took too long to answer %s %s", r.method, r.path)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fault.Wrap(err, fault.Unavailable, "the controller can't be reached")
	default:
		return fault.Wrap(err, fault.Unavailable, "the connection to the controller broke at %s %s", r.method, r.path)
	}
}

// untrusted reports a handshake that failed by the certificate.
func untrusted(err error) bool {
	var (
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid)
}

// ended is the fault of a context that is over.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Wrap(ctx.Err(), fault.Timeout, "the time for the operation is over")
	}
	return fault.Wrap(ctx.Err(), fault.Unavailable, "the operation was cancelled")
}

// dropped reports an error that a fresh connection may not have: nothing but the connection is to blame.
func dropped(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, errTooLarge) ||
		errors.Is(err, errPin) || untrusted(err) {
		return false
	}
	var dial *net.OpError
	var timed net.Error
	return (!errors.As(err, &dial) || dial.Op != "dial") && (!errors.As(err, &timed) || !timed.Timeout())
}
