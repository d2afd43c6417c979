package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/fault"
)

// patience bounds what a download puts up with.
type patience struct {
	Stalled time.Duration // how long a connection may give nothing before it counts as broken
	Nothing time.Duration // how long nothing new may come, over all connections; a server that says when to come again is believed
	Before  time.Duration // the same where another server may have it
	Anew    int           // how often a server that gives no parts is read from the beginning again
	Pauses  Backoff       // between connections
}

var patient = patience{
	Stalled: 15 * time.Second, Nothing: 10 * time.Minute, Before: 30 * time.Second, Anew: 5,
	Pauses: Backoff{First: 500 * time.Millisecond, Most: 30 * time.Second},
}

// download is an image on its way, read as one stream. Where the connection breaks off it asks for the rest; where the server
// gives no parts it begins again, and skips what it has. What comes after a break may be of another file: the digest of the
// whole tells, and nothing else is relied upon. A server that does not have it, or nothing more of it, is left for the next. One
// goroutine reads it.
type download struct {
	ctx    context.Context //nolint:containedctx // of one order, behind an io.Reader
	client *http.Client
	url    string
	others []string // where else it may be
	bytes  int64    // as promised
	tell   disk.Progress
	log    *slog.Logger
	patience

	body    *watched  // nil: there is no connection
	at      int64     // how much was given
	trouble error     // why there is no connection; nil: there never was one
	moved   time.Time // when something new came last
	pauses  pauses
	whole   bool // the server is not asked for parts: what it gave was none
	anew    int

	broken  bool         // it broke off, and nothing new has come since
	resumed atomic.Int32 // how often something came all the same

	mu     sync.Mutex
	failed error // why it is over
}

func newDownload(
	ctx context.Context, client *http.Client, urls []string, bytes int64, tell disk.Progress, log *slog.Logger, p patience,
) *download {
	return &download{
		ctx: ctx, client: client, url: urls[0], others: urls[1:], bytes: bytes, tell: tell, log: log, patience: p,
		moved: time.Now(), pauses: pauses{bounds: p.Pauses, next: p.Pauses.First},
	}
}

// begin connects, so that a server without the image is known before a disk is touched.
func (d *download) begin() error {
	if err := d.connect(); err != nil {
		return d.over(err)
	}
	return nil
}

// Read is io.Reader's. It ends where the server's file does, or where as much was given as was promised and the rest broke off.
func (d *download) Read(p []byte) (int, error) {
	for {
		if err := d.connect(); err != nil {
			return 0, d.over(err)
		}
		n, err := d.body.Read(p)
		if n > 0 {
			d.came(n)
		}
		switch {
		case err == nil:
			return n, nil
		case d.at >= d.bytes:
			return n, io.EOF
		}
		d.hangUp(d.brokeOff(err))
		if n > 0 {
			return n, nil
		}
	}
}

// came notes that something new came.
func (d *download) came(n int) {
	if d.broken {
		d.broken = false
		d.resumed.Add(1)
	}
	d.at += int64(n)
	d.moved = time.Now()
	d.pauses.reset()
}

// Close ends it.
func (d *download) Close() error {
	d.hangUp(nil)
	return nil
}

func (d *download) hangUp(why error) {
	if d.body != nil {
		_ = d.body.Close() // nothing more of it is wanted
		d.body = nil
	}
	d.trouble = why
}

// over notes why it can't go on. The end of the order is not the download's failure.
func (d *download) over(err error) error {
	if ended := d.ctx.Err(); ended != nil {
		return ended
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	return err
}

// failure is why it could not go on; nil: it could.
func (d *download) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// told adds to a message what the download went through.
func (d *download) told(message string) string {
	switch n := d.resumed.Load(); n {
	case 0:
		return message
	case 1:
		return message + ", its download resumed once"
	default:
		return fmt.Sprintf("%s, its download resumed %d times", message, n)
	}
}

// errPassing marks what the next try may not meet.
var errPassing = errors.New("it may pass")

func (d *download) brokeOff(err error) error {
	why := withoutURL(err)
	if errors.Is(err, io.EOF) {
		why = io.ErrUnexpectedEOF
	}
	d.broken = d.at > 0
	return fault.Wrap(errors.Join(errPassing, why), fault.DriverError, "the image's server broke off after %d of %d bytes: %v",
		d.at, d.bytes, why)
}

// connect asks for what is missing until the server gives it, or there is no hope.
func (d *download) connect() error {
	for d.body == nil {
		if d.trouble != nil {
			if err := d.wait(); err != nil && !d.elsewhere(err) {
				return err
			}
		}
		body, err := d.ask()
		switch {
		case err == nil:
			d.body = body
		case d.ctx.Err() != nil || !errors.Is(err, errPassing):
			if !d.elsewhere(err) {
				return err
			}
		default:
			d.trouble = err
		}
	}
	return nil
}

// elsewhere goes on at the next server, and tells whether there is one.
func (d *download) elsewhere(why error) bool {
	if len(d.others) == 0 || d.ctx.Err() != nil {
		return false
	}
	d.log.Info("an image is fetched from elsewhere", "bytes", d.at, "reason", why)
	d.url, d.others = d.others[0], d.others[1:]
	d.trouble, d.moved, d.whole, d.anew = nil, time.Now(), false, 0
	d.pauses.reset()
	return true
}

// wait pauses before the next try.
func (d *download) wait() error {
	var known *fault.Error
	_ = errors.As(d.trouble, &known) // all of them are
	_, invited := known.Details[fault.RetryAfter]
	most := d.Nothing
	if len(d.others) > 0 {
		most = d.Before
	}
	if quiet := time.Since(d.moved); quiet > most && !invited {
		return fault.Wrap(d.trouble, known.Code, "%s; nothing came for %s", known.Message, quiet.Round(time.Second)).
			WithDetail("bytes", d.at)
	}
	d.log.Warn("an image's download is tried again", "bytes", d.at, "of", d.bytes, "error", known.Message)
	d.tell(99*float64(d.at)/float64(d.bytes), known.Message+"; it is tried again")
	d.pauses.wait(d.ctx, d.trouble)
	return d.ctx.Err()
}

// ask asks once for what is missing.
func (d *download) ask() (*watched, error) {
	ctx, cancel := context.WithCancelCause(d.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		cancel(nil)
		return nil, fault.Invalid(fault.Issue{Path: "url", Message: "is not a URL"})
	}
	if d.at > 0 && !d.whole {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.at))
	}
	answer, err := d.client.Do(req) //nolint:bodyclose // body closes it
	if err != nil {
		cancel(nil)
		return nil, fault.Wrap(errors.Join(errPassing, withoutURL(err)), fault.DriverError, "the image can't be fetched: %v", withoutURL(err))
	}
	body := watch(ctx, answer.Body, d.Stalled, cancel)
	skip, err := d.answered(answer)
	if err == nil && skip {
		err = d.skip(body)
	}
	if err != nil {
		_ = body.Close() // nothing of it is wanted
		return nil, err
	}
	return body, nil
}

// answered looks at an answer's head; skip says that the body begins with what was given already.
func (d *download) answered(answer *http.Response) (skip bool, err error) {
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		if answer.ContentLength >= 0 {
			err = d.measure(answer.ContentLength)
		}
		return d.at > 0, err
	case code == http.StatusPartialContent && d.at > 0:
		return false, d.isTheRest(answer.Header.Get("Content-Range"))
	case code == http.StatusRequestedRangeNotSatisfiable && d.at > 0:
		return false, d.isTheRest(answer.Header.Get("Content-Range"))
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests,
		code >= http.StatusInternalServerError:
		refused := fault.Wrap(errPassing, fault.DriverError, "the image's server answered %s", answer.Status)
		if seconds, err := strconv.ParseFloat(answer.Header.Get("Retry-After"), 64); err == nil {
			_ = refused.WithDetail(fault.RetryAfter, seconds)
		}
		return false, refused
	}
	return false, fault.New(fault.DriverError, "the image's server answered %s", answer.Status)
}

// measure refuses a file of another size than the image's.
func (d *download) measure(size int64) error {
	if size == d.bytes {
		return nil
	}
	return fault.New(fault.DriverError, "the image's server has %d bytes where %d were promised", size, d.bytes).
		WithRemedy("compare the image as it was registered with the file at its URL")
}

// isTheRest reads a Content-Range. A server that gives another part than was asked for is asked for none from then on.
func (d *download) isTheRest(text string) error {
	var from, to, size int64
	n, _ := fmt.Sscanf(text, "bytes %d-%d/%d", &from, &to, &size) // the size may be a star
	if n == 0 {
		n, _ = fmt.Sscanf(text, "bytes */%d", &size)
		from, n = -1, 3*n
	}
	if n == 3 {
		if err := d.measure(size); err != nil {
			return err
		}
	}
	if n < 2 || from != d.at {
		d.whole = true
		return fault.Wrap(errPassing, fault.DriverError, "the image's server gives another part than was asked for")
	}
	return nil
}

// skip reads over what was given already.
func (d *download) skip(body io.Reader) error {
	if d.anew++; d.anew > d.Anew {
		return fault.New(fault.DriverError, "the image's server gives no parts of it, and broke off %d times", d.anew).
			WithRemedy("serve the image from where HTTP ranges are answered, such as the site's cache")
	}
	d.log.Warn("an image's server gives no parts: its download begins again", "bytes", d.at)
	d.tell(99*float64(d.at)/float64(d.bytes), "the image's server gives no parts of it: what is written already is read again")
	if n, err := io.CopyN(io.Discard, body, d.at); err != nil {
		return fault.Wrap(errors.Join(errPassing, withoutURL(err)), fault.DriverError,
			"the image's server broke off after %d of %d bytes: %v", n, d.bytes, withoutURL(err))
	}
	return nil
}

// withoutURL takes the URL out of an error: it may hold a token of the image store.
func withoutURL(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// watched is a body that has to move.
type watched struct {
	ctx     context.Context //nolint:containedctx // of the connection
	body    io.ReadCloser
	stalled time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

func watch(ctx context.Context, body io.ReadCloser, stalled time.Duration, cancel context.CancelCauseFunc) *watched {
	w := &watched{ctx: ctx, body: body, stalled: stalled, cancel: cancel}
	w.timer = time.AfterFunc(stalled, func() { cancel(fmt.Errorf("it sent nothing for %s", stalled)) })
	w.timer.Stop()
	return w
}

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.stalled)
	n, err := w.body.Read(p)
	w.timer.Stop() // what is written meanwhile takes its time
	if err != nil && !errors.Is(err, io.EOF) {
		err = cmp.Or(context.Cause(w.ctx), err)
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	err := w.body.Close()
	w.cancel(nil)
	return err
}
