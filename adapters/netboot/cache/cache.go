// Package cache keeps images near the machines, by the SHA-256 of their bytes. Nothing is given out before its bytes were
// checked; what was not used for longest makes room.
package cache

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Options say what is kept, where and from where.
type Options struct {
	Dir       string
	Bytes     int64         // how much is kept at most, with downloads that are not complete
	From      []string      // URLs that sources begin with; others are refused, or any machine could have the agent fetch anything
	Downloads int           // at once
	Pause     time.Duration // before a source that broke off is asked again
	Client    *http.Client
	Now       func() time.Time
	Logger    *slog.Logger
}

// Cache is a directory of images. Safe for concurrent use; one process has it at a time.
type Cache struct {
	o      Options
	from   []source
	root   *os.Root
	ctx    context.Context // ends the downloads
	cancel context.CancelFunc
	slots  chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry // by digest
	flights map[string]*flight
}

// entry is a complete image, or a part of one.
type entry struct {
	size    int64
	used    time.Time
	checked bool // by this process
	part    bool
}

// flight is a download, or the check of an image of an earlier run, that everybody who asks for the digest waits for.
type flight struct {
	done chan struct{}
	err  error
	got  int64
	size int64 // -1: not known
}

const partial = ".part"

var isDigest = regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString

// Open takes over a directory, with what an earlier run left there.
func Open(o Options) (*Cache, error) {
	from, err := parseSources(o.From)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the cache's directory can't be made: %v", err)
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the cache's directory can't be opened: %v", err)
	}
	c := &Cache{
		o: o, from: from, root: root, slots: make(chan struct{}, o.Downloads),
		entries: map[string]*entry{}, flights: map[string]*flight{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := errors.Join(c.probe(), c.scan()); err != nil {
		c.Close()
		return nil, fault.Wrap(err, fault.InvalidConfig, "the cache's directory can't be used: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoom(0, "")
	return c, nil
}

// Close ends the downloads. What they have so far is kept.
func (c *Cache) Close() {
	c.cancel()
	c.work.Wait()
	_ = c.root.Close() // everything in it was closed before
}

// probe tells a directory that can't be written to before a machine needs it.
func (c *Cache) probe() error {
	const name = ".probe"
	file, err := c.root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), c.root.Remove(name))
}

// scan notes what there is. Other files are left alone.
func (c *Cache) scan() error {
	list, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, file := range list {
		digest, part := strings.CutSuffix(file.Name(), partial)
		info, err := file.Info()
		if err != nil || !info.Mode().IsRegular() || !isDigest(digest) {
			continue
		}
		if part && c.entries[digest] != nil {
			_ = c.root.Remove(file.Name()) // the whole image is there
			continue
		}
		c.entries[digest] = &entry{size: info.Size(), used: info.ModTime(), part: part}
	}
	return nil
}

// ParseDigest reads sha256:<64 hexadecimal digits>.
func ParseDigest(text string) (string, error) {
	digest, ok := strings.CutPrefix(text, "sha256:")
	if _, err := hex.DecodeString(digest); !ok || err != nil || !isDigest(digest) {
		return "", fault.Invalid(fault.Issue{Path: "digest", Message: "is not sha256:<64 hexadecimal digits in lower case>"})
	}
	return digest, nil
}

// Get opens an image, fetching it from its source if it is not there. Until it is there and checked, callers wait as long as
// their ctx lets them; then they get UNAVAILABLE, and the download goes on. Without a source only what is there is given.
func (c *Cache) Get(ctx context.Context, digest, from string) (*os.File, error) {
	if from != "" {
		if err := c.allowed(from); err != nil {
			return nil, err
		}
	}
	for range 2 { // an image may have to make room just after its download
		file, f, err := c.openOrFetch(digest, from)
		if file != nil || err != nil {
			return file, err
		}
		select {
		case <-f.done:
			if f.err != nil {
				return nil, f.err
			}
		case <-ctx.Done():
			return nil, c.notYet(ctx, f)
		}
	}
	return nil, fault.New(fault.Unavailable, "the image had to make room at once").WithRemedy("give the cache more space")
}

func (c *Cache) notYet(ctx context.Context, f *flight) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fault.Wrap(ctx.Err(), fault.Unavailable, "the image is being fetched").WithRemedy("ask again in a moment").
		WithDetail("bytes", f.got).WithDetail("size", f.size)
}

// openOrFetch gives the image's file, or the flight to wait for.
func (c *Cache) openOrFetch(digest, from string) (*os.File, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[digest]; f != nil {
		return nil, f, nil
	}
	e := c.entries[digest]
	whole := e != nil && !e.part
	switch {
	case whole && e.checked:
		file, err := c.root.Open(digest)
		if err == nil {
			c.touch(digest, e)
			return file, nil, nil
		}
		delete(c.entries, digest) // somebody took it away
		return c.begin(digest, from, false)
	case whole:
		return c.begin(digest, from, true)
	}
	return c.begin(digest, from, false)
}

// queued is how many images may wait for each download that may run. Any machine may ask for any digest, and each is fetched to its
// end before it turns out to be none: the queue must not grow by that, for those who come later wait behind it.
const queued = 8

// begin starts the one flight of a digest.
func (c *Cache) begin(digest, from string, there bool) (*os.File, *flight, error) {
	if c.ctx.Err() != nil {
		return nil, nil, fault.New(fault.Unavailable, "the cache is closed")
	}
	if !there && from == "" {
		return nil, nil, fault.New(fault.NotFound, "the image is not in the cache, and no source was named")
	}
	if !there && len(c.flights) >= queued*c.o.Downloads {
		return nil, nil, fault.New(fault.RateLimited, "%d images are being fetched, or wait for that", len(c.flights)).
			WithRemedy("ask again later, or fetch the image from its source")
	}
	f := &flight{done: make(chan struct{}), size: -1}
	c.flights[digest] = f
	c.work.Go(func() {
		err := c.run(digest, from, there, f)
		c.mu.Lock()
		defer c.mu.Unlock()
		f.err = err
		delete(c.flights, digest)
		close(f.done)
	})
	return nil, f, nil
}

// run checks what an earlier run left, and fetches what is not there or not right.
func (c *Cache) run(digest, from string, there bool, f *flight) error {
	if there {
		err := c.check(digest)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errDiffers) && !errors.Is(err, fs.ErrNotExist) {
			return c.failed(err)
		}
		c.o.Logger.Warn("an image in the cache is damaged", "digest", digest, "error", err)
		c.remove(digest)
		if from == "" {
			return fault.New(fault.NotFound, "the image in the cache was damaged, and no source was named")
		}
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.ctx.Done():
		return fault.New(fault.Unavailable, "the cache is closed")
	}
	return c.download(digest, from, f)
}

// touch notes a use, also for the next run.
func (c *Cache) touch(digest string, e *entry) {
	e.used = c.o.Now()
	_ = c.root.Chtimes(digest, e.used, e.used) // without it the order is a little wrong after a restart
}

func (c *Cache) remove(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(digest)
}

func (c *Cache) drop(digest string) {
	e := c.entries[digest]
	if e == nil {
		return
	}
	delete(c.entries, digest)
	name := digest
	if e.part {
		name += partial
	}
	if err := c.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.o.Logger.Warn("an image can't be removed from the cache", "digest", digest, "error", err)
	}
}

// makeRoom takes away what was not used for longest until so many more bytes fit. Machines that read an image keep it.
func (c *Cache) makeRoom(bytes int64, keep string) bool {
	for c.total()+bytes > c.o.Bytes {
		oldest := ""
		for digest, e := range c.entries {
			if digest == keep || c.flights[digest] != nil {
				continue
			}
			if oldest == "" || e.used.Before(c.entries[oldest].used) {
				oldest = digest
			}
		}
		if oldest == "" {
			return false
		}
		c.o.Logger.Info("an image makes room in the cache", "digest", oldest, "bytes", c.entries[oldest].size)
		c.drop(oldest)
	}
	return true
}

func (c *Cache) total() (sum int64) {
	for _, e := range c.entries {
		sum += e.size
	}
	return sum
}

// path is where an image's file is, for messages to the operator.
func (c *Cache) path(digest string) string { return filepath.Join(c.o.Dir, digest) }
