package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// How long a source may send nothing, and how often it may break off without having sent anything new.
const (
	stalled = time.Minute
	breaks  = 5
)

// errDiffers means that the bytes are not those of the digest.
var errDiffers = errors.New("the bytes have another digest")

// check takes the digest of a complete image.
func (c *Cache) check(digest string) error {
	file, err := c.root.Open(digest)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was read
	sum := sha256.New()
	if _, err := copyUntil(c.ctx, sum, file); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return errDiffers
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[digest]; e != nil {
		e.checked = true
		c.touch(digest, e)
	}
	return nil
}

// copyUntil copies until ctx ends.
func copyUntil(ctx context.Context, to io.Writer, from io.Reader) (int64, error) {
	var n int64
	for {
		more, err := io.CopyN(to, from, 1<<20)
		n += more
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return n, err
		}
	}
}

// download is one image on its way.
type download struct {
	cache  *Cache
	digest string
	from   string
	flight *flight
	file   *os.File
	sum    hash.Hash
	got    int64
	etag   string // of the answers so far: another one is another file
}

// download fetches an image, going on where an earlier download ended. A part that turns out to be of other bytes is
// fetched again from its beginning, once.
func (c *Cache) download(digest, from string, f *flight) error {
	file, err := c.root.OpenFile(digest+partial, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return c.failed(err)
	}
	defer file.Close() //nolint:errcheck // what counts was synchronised
	d := &download{cache: c, digest: digest, from: from, flight: f, file: file, sum: sha256.New()}
	if d.got, err = copyUntil(c.ctx, d.sum, file); err != nil {
		return c.failed(err)
	}
	resumed := d.got > 0
	began := c.o.Now()
	err = d.complete()
	if resumed && errors.Is(err, errDiffers) {
		c.o.Logger.Warn("a part of an image was not right", "digest", digest)
		if err = d.restart(); err == nil {
			err = d.complete()
		}
	}
	if errors.Is(err, errDiffers) {
		c.remove(digest)
		return fault.Wrap(err, fault.DriverError, "what the source has is not the image").
			WithRemedy("compare the image's digest with the file at its URL")
	}
	if err != nil {
		return c.failed(err)
	}
	c.o.Logger.Info("an image is in the cache", "file", c.path(digest), "bytes", d.got, "resumed", resumed,
		"took", c.o.Now().Sub(began).Round(time.Millisecond))
	return nil
}

// failed is what those who wait are told; the operator's log has the reason.
func (c *Cache) failed(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	c.o.Logger.Error("an image can't be kept", "error", err)
	return fault.Wrap(err, fault.Unavailable, "the image can't be kept here")
}

// complete fetches what is missing, checks the whole and gives it its name.
func (d *download) complete() error {
	for failures := 0; ; {
		before := d.got
		err := d.fetch()
		if err == nil {
			break
		}
		if d.got > before {
			failures = 0
		}
		failures++
		if !isPassing(err) || failures > breaks || d.cache.ctx.Err() != nil {
			return err
		}
		d.cache.o.Logger.Warn("the download of an image broke off", "digest", d.digest, "bytes", d.got, "error", err)
		if err := pause(d.cache.ctx, d.cache.o.Pause); err != nil {
			return fault.New(fault.Unavailable, "the cache is closed")
		}
	}
	if hex.EncodeToString(d.sum.Sum(nil)) != d.digest {
		return errDiffers
	}
	if err := d.file.Sync(); err != nil {
		return err
	}
	c := d.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.root.Rename(d.digest+partial, d.digest); err != nil {
		return err
	}
	c.entries[d.digest] = &entry{size: d.got, used: c.o.Now(), checked: true}
	return nil
}

// errPassing marks what may be over with the next try.
var errPassing = errors.New("the source broke off")

func isPassing(err error) bool { return errors.Is(err, errPassing) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch asks for the bytes from d.got on.
func (d *download) fetch() error {
	ctx, cancel := context.WithCancel(d.cache.ctx)
	defer cancel()
	watch := time.AfterFunc(stalled, cancel)
	defer watch.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.from, nil)
	if err != nil {
		return err
	}
	if d.got > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.got))
		if d.etag != "" {
			req.Header.Set("If-Range", d.etag)
		}
	}
	answer, err := d.cache.o.Client.Do(req)
	if err != nil {
		return fault.Wrap(errors.Join(errPassing, err), fault.Unavailable, "the image's source can't be reached")
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	over, err := d.begin(answer)
	if err != nil || over {
		return err
	}
	return d.receive(answer.Body, watch)
}

// begin looks at the answer's head. It is over if there is nothing more to come.
func (d *download) begin(answer *http.Response) (over bool, err error) {
	size := int64(-1)
	switch code := answer.StatusCode; {
	case code == http.StatusPartialContent && d.got > 0:
		var from, to int64
		n, err := fmt.Sscanf(answer.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size)
		if from != d.got || (n < 2 && err != nil) {
			return false, d.startOver("the source gives another part than was asked for")
		}
	case code == http.StatusRequestedRangeNotSatisfiable && d.got > 0:
		if answer.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.got) {
			return true, nil // the part is the whole
		}
		return false, d.startOver("the source has less than is here already")
	case code == http.StatusOK:
		if err := d.restart(); err != nil {
			return false, err
		}
		size = answer.ContentLength
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return false, fault.Wrap(errPassing, fault.Unavailable, "the image's source answered %s", answer.Status)
	default:
		return false, fault.New(fault.DriverError, "the image's source answered %s", answer.Status)
	}
	if tag := answer.Header.Get("ETag"); !strings.HasPrefix(tag, "W/") {
		d.etag = tag
	}
	return false, d.grow(max(size-d.got, 0), size)
}

func (d *download) startOver(why string) error {
	if err := d.restart(); err != nil {
		return err
	}
	return fault.Wrap(errPassing, fault.Unavailable, "%s", why)
}

// restart forgets what was fetched.
func (d *download) restart() error {
	_, err := d.file.Seek(0, io.SeekStart)
	if err := errors.Join(err, d.file.Truncate(0)); err != nil {
		return err
	}
	d.got, d.etag = 0, ""
	d.sum.Reset()
	return d.grow(0, -1)
}

// grow notes how much there is, and makes room for what is about to come.
func (d *download) grow(more, size int64) error {
	c := d.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	d.flight.got, d.flight.size = d.got, size
	c.entries[d.digest] = &entry{size: d.got, used: c.o.Now(), part: true}
	if d.got+more > c.o.Bytes {
		c.drop(d.digest)
		return fault.New(fault.Unavailable, "the image is larger than the cache").WithRemedy("give the cache more space")
	}
	if !c.makeRoom(more, d.digest) {
		return fault.New(fault.Unavailable, "other downloads fill the cache").
			WithRemedy("ask again later, or give the cache more space")
	}
	return nil
}

// receive writes what comes. Space is taken chunk by chunk too: a source need not tell a size, or the true one.
func (d *download) receive(body io.Reader, watch *time.Timer) error {
	buffer := make([]byte, 1<<18)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			watch.Reset(stalled)
			if err := d.grow(int64(n), d.flight.size); err != nil {
				return err
			}
			if _, err := d.file.Write(buffer[:n]); err != nil {
				return err
			}
			_, _ = d.sum.Write(buffer[:n]) // a hash takes everything
			d.got += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return d.grow(0, d.got)
		case err != nil:
			broke := fault.Wrap(errors.Join(errPassing, err), fault.Unavailable, "the image's source broke off")
			return errors.Join(d.grow(0, d.flight.size), broke)
		}
	}
}
