package agent

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/fault"
)

// errRefused marks an error after which no further attempt can succeed.
var errRefused = errors.New("refused")

// renewAgain is how long a renewal that failed is left alone.
const renewAgain = time.Minute

// join makes sure that the agent has a certificate: the one in its state, or one for its token. The same request is sent
// until it is answered, so that a gateway which issued a certificate whose answer was lost can tell that it is the same.
func (a *runner) join(ctx context.Context) error {
	if a.link.who().valid(a.now()) {
		return nil
	}
	kept, ok, err := a.State.Load()
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, stateFault(err, "read"))
	}
	if ok && kept.AgentID != "" && fingerprint(kept.CA) == a.CA && !a.link.rejected(kept) {
		if known, err := a.resume(ctx, kept); known || err != nil {
			return err
		}
	}
	if a.Token == "" {
		return fmt.Errorf("%w: %w", errRefused, fault.New(fault.Unauthenticated, "there is neither a valid certificate nor a join token"))
	}
	if ok && kept.AgentID != "" && kept.JoinedWith == tokenHash(a.Token) {
		return fmt.Errorf("%w: %w", errRefused, fault.New(fault.Unauthenticated,
			"the agent's certificate is not accepted any more, and the join token is the one that it joined with"))
	}
	key, csr, err := a.joinKey(kept)
	if err != nil {
		return err
	}
	ask := protocol.JoinRequest{
		Token: a.Token, Role: a.Role, Claims: a.claims, CSR: csr, BootID: a.bootID, Version: a.Version, Name: a.Name,
	}
	for pause := a.pauses(); ctx.Err() == nil; {
		var answer protocol.JoinAnswer
		err := a.link.call(ctx, protocol.PathJoin, ask, &answer, callWithin)
		switch {
		case err == nil:
			return a.joined(key, answer)
		case !transient(err) || fault.CodeOf(err) == fault.Unauthenticated:
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		a.log.Warn("join", "error", err)
		pause.wait(ctx, err)
	}
	return nil
}

// resume goes on with the certificate that was kept, renewing it where it has expired: a machine may have been off for long.
// It tells whether the gateway still knows the agent.
func (a *runner) resume(ctx context.Context, kept Identity) (known bool, err error) {
	if err := a.link.become(kept); err != nil {
		return false, fmt.Errorf("%w: %w", errRefused, err)
	}
	if kept.valid(a.now()) {
		return true, nil
	}
	if err = a.renewNow(ctx); fault.CodeOf(err) == fault.Unauthenticated {
		a.link.forget()
		return false, nil
	}
	return err == nil, err
}

// joinKey is the key to join with. It is kept before it is used: the same token with the same key is answered again, also
// where this process dies before the answer arrived. What the agent was is kept with it: a gateway that never answers, or a
// CA that was mistyped, costs no certificate.
func (a *runner) joinKey(kept Identity) (ed25519.PrivateKey, []byte, error) {
	if parsed, err := x509.ParsePKCS8PrivateKey(kept.Joining); err == nil {
		if key, ok := parsed.(ed25519.PrivateKey); ok {
			csr, err := requestFor(key, a.Name)
			return key, csr, err
		}
	}
	key, csr, err := newKey(a.Name)
	if err != nil {
		return nil, nil, err
	}
	if kept.Joining, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, "the key can't be written")
	}
	if err := a.State.Save(kept); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errRefused, stateFault(err, "kept"))
	}
	return key, csr, nil
}

// stateFault is a fault of the agent's own host. No gateway had a part in it, and no token mends it.
func stateFault(err error, what string) error {
	return fault.Wrap(err, fault.InvalidConfig, "the agent's state can't be %s: %v", what, err).
		WithRemedy("let the agent's user read and write its state directory, and see that there is space")
}

func (a *runner) joined(key ed25519.PrivateKey, answer protocol.JoinAnswer) error {
	i := Identity{AgentID: answer.AgentID, NodeID: answer.NodeID, SiteID: answer.SiteID, JoinedWith: tokenHash(a.Token)}
	i, err := a.identityOf(i, key, answer.Certificate)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if err := a.State.Save(i); err != nil {
		a.log.Error("the certificate can't be kept; the next start has to join again", "error", err)
	}
	if err := a.link.become(i); err != nil {
		return err
	}
	a.log.Info("joined", "agent", answer.AgentID, "node", answer.NodeID, "site", answer.SiteID)
	return nil
}

// identityOf checks a new certificate and puts it together with its key.
func (a *runner) identityOf(i Identity, key ed25519.PrivateKey, c protocol.Certificate) (Identity, error) {
	issued, err := x509.ParseCertificate(c.Certificate)
	if err != nil {
		return i, fault.Wrap(err, fault.Internal, "the gateway issued no certificate that can be read")
	}
	if own, ok := issued.PublicKey.(ed25519.PublicKey); !ok || !own.Equal(key.Public()) {
		return i, fault.New(fault.Internal, "the gateway issued a certificate of another key")
	}
	if fingerprint(c.CA) != a.CA {
		return i, fault.New(fault.Unauthenticated, "the certificate was issued by a CA that is not the configured one")
	}
	if i.Key, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return i, fault.Wrap(err, fault.Internal, "the key can't be written")
	}
	i.Certificate, i.CA, i.NotAfter, i.RenewAfter = c.Certificate, c.CA, c.NotAfter, c.RenewAfter
	if i.NotAfter.IsZero() {
		i.NotAfter = issued.NotAfter
	}
	return i, nil
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func newKey(name string) (ed25519.PrivateKey, []byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	csr, err := requestFor(key, name)
	return key, csr, err
}

func requestFor(key ed25519.PrivateKey, name string) ([]byte, error) {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return csr, nil
}

// forget drops an identity that the gateway does not accept, and tells whether there was one.
func (l *link) forget() bool {
	i := l.who()
	if i.AgentID == "" {
		return false
	}
	l.mu.Lock()
	l.dropped = fingerprint(i.Certificate)
	l.mu.Unlock()
	return l.become(Identity{}) == nil
}

// rejected tells whether an identity is the one that was dropped last.
func (l *link) rejected(i Identity) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped == fingerprint(i.Certificate)
}

// signer is the key and the fingerprint of the certificate that results are signed under.
func (l *link) signer() (crypto.Signer, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.key, fingerprint(l.identity.Certificate)
}

// renewAt moves the time of renewal forward where the gateway says so.
func (l *link) renewAt(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.IsZero() && (l.renew.IsZero() || t.Before(l.renew)) {
		l.renew = t
	}
}

// renewWhenDue asks for a certificate of a fresh key in good time. Where that fails the old one serves on, and it is asked
// for again a little later.
func (a *runner) renewWhenDue(ctx context.Context) {
	a.link.mu.Lock()
	due := !a.link.renew.IsZero() && !a.now().Before(a.link.renew)
	if due {
		a.link.renew = a.now().Add(renewAgain)
	}
	a.link.mu.Unlock()
	if !due {
		return
	}
	if err := a.renewNow(ctx); err != nil {
		a.log.Warn("the certificate is not renewed yet", "error", err)
	}
}

// renewNow keeps the new certificate before it uses it: from its first use on the old one is no good. A state that can't be
// kept is found before the gateway is asked, which records every certificate that it issues.
func (a *runner) renewNow(ctx context.Context) error {
	if err := a.State.Save(a.link.who()); err != nil {
		return stateFault(err, "kept")
	}
	key, csr, err := newKey(a.Name)
	if err != nil {
		return err
	}
	var c protocol.Certificate
	if err := a.link.call(ctx, protocol.PathRenew, protocol.RenewRequest{CSR: csr}, &c, callWithin); err != nil {
		return err
	}
	i, err := a.identityOf(a.link.who(), key, c)
	if err != nil {
		return err
	}
	if err := a.State.Save(i); err != nil {
		return stateFault(err, "kept")
	}
	if err := a.link.become(i); err != nil {
		return err
	}
	a.link.mu.Lock()
	defer a.link.mu.Unlock()
	if again := a.now().Add(renewAgain); a.link.renew.Before(again) {
		a.link.renew = again // a gateway that gives short ones does not make the agent renew all the time
	}
	return nil
}
