package lab

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/profile/builtin"
)

// Library is the server of one image, which may stop halfway or break connections off.
type Library struct {
	image []byte

	mu     sync.Mutex
	asked  []string // the ranges that were asked for
	stop   *stop    // of the next request
	breaks int      // connections that are broken off yet, each after so many bytes
	after  int64
}

// stop is where one request is held up.
type stop struct {
	after             int64
	reached, released chan struct{}
}

// Library registers an image of the tenant, signed, as name@1, and serves it until the test ends.
func (l *Lab) Library(name string, image []byte) *Library {
	l.T.Helper()
	y := &Library{image: image}
	address := freeAddressOf(l.T, l.options.Host)
	l.serve(address, y)
	sum := sha256.Sum256(image)
	_, err := l.Client.RegisterImage(l.T.Context(), contract.NewImage{
		Tenant: l.Tenant, Name: name, Version: "1", Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: int64(len(image)), Format: "raw",
		URL: "http://" + address + "/" + name + ".raw", Signature: ed25519.Sign(l.signer(name), sum[:]),
	})
	l.must(err)
	return y
}

// serve serves until the test ends.
func (l *Lab) serve(address string, handler http.Handler) {
	l.T.Helper()
	listener, err := (&net.ListenConfig{}).Listen(l.T.Context(), "tcp", address)
	l.must(err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	l.T.Cleanup(func() {
		_ = server.Close() // nobody fetches any more
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			l.T.Errorf("the server at %s: %v", address, err)
		}
	})
}

// signer gives a key that the tenant trusts, beside those that it trusts already.
func (l *Lab) signer(name string) ed25519.PrivateKey {
	l.T.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	l.must(err)
	der, err := x509.MarshalPKIXPublicKey(public)
	l.must(err)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	l.guard.Lock()
	defer l.guard.Unlock()
	tenant, err := l.Client.GetTenant(l.T.Context(), l.Tenant)
	l.must(err)
	tenant.Policy.ImageSigners = append(tenant.Policy.ImageSigners, contract.ImageSigner{Name: name, PublicKey: key})
	_, err = l.Client.ChangeTenantPolicy(l.T.Context(), l.Tenant, tenant.Policy)
	l.must(err)
	return private
}

// DeployProfile stores a profile that deploys another image as image-host does, after each of its steps was changed.
func (l *Lab) DeployProfile(name, image string, change func(step map[string]any)) {
	l.T.Helper()
	all, err := builtin.Profiles()
	l.must(err)
	for _, doc := range all {
		if doc.ID != "image-host" {
			continue
		}
		doc.ID, doc.Image = name, image
		text, err := json.Marshal(doc)
		l.must(err)
		l.CreateProfile(text, change)
		return
	}
	l.T.Fatal("there is no image-host")
}

// StopOnce has the next request that comes be held up after so many bytes: reached is closed then. Release lets it go on.
func (y *Library) StopOnce(after int64) (reached <-chan struct{}, release func()) {
	s := &stop{after: after, reached: make(chan struct{}), released: make(chan struct{})}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.stop = s
	return s.reached, sync.OnceFunc(func() { close(s.released) })
}

// Break has so many of the next requests be broken off, each after so many bytes.
func (y *Library) Break(times int, after int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.breaks, y.after = times, after
}

// Asked lists the ranges that were asked for; an empty one is the whole.
func (y *Library) Asked() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.asked)
}

// ServeHTTP serves the image.
func (y *Library) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &interrupted{ResponseWriter: w, ctx: r.Context()}
	y.mu.Lock()
	y.asked = append(y.asked, r.Header.Get("Range"))
	out.stop, y.stop = y.stop, nil
	if out.breaks = y.breaks > 0; out.breaks {
		y.breaks--
	}
	out.after = y.after
	y.mu.Unlock()
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(y.image))
}

// interrupted is an answer on its way.
type interrupted struct {
	http.ResponseWriter
	ctx    context.Context //nolint:containedctx // of the request, behind an io.Writer
	sent   int64
	stop   *stop
	breaks bool
	after  int64
}

// Write implements io.Writer.
func (w *interrupted) Write(p []byte) (int, error) {
	if s := w.stop; s != nil && w.sent+int64(len(p)) >= s.after {
		w.stop = nil
		n, err := w.pass(p[:s.after-w.sent])
		if err != nil {
			return n, err
		}
		close(s.reached)
		select {
		case <-s.released:
		case <-w.ctx.Done():
			return n, w.ctx.Err()
		}
		more, err := w.Write(p[n:])
		return n + more, err
	}
	if w.breaks && w.sent+int64(len(p)) >= w.after {
		_, _ = w.pass(p[:w.after-w.sent]) // it is broken off anyway
		panic(http.ErrAbortHandler)
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, err
}

// pass writes the last bytes before an interruption, so that they arrive.
func (w *interrupted) pass(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, errors.Join(err, http.NewResponseController(w.ResponseWriter).Flush())
}
