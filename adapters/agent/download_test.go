package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// library is a server of one image that behaves as its test says.
type library struct {
	*httptest.Server
	content []byte

	mu     sync.Mutex
	ranges []string // what was asked for
	// answer serves a request, the nth from 1 on; nil: as a good server does.
	answer func(w http.ResponseWriter, r *http.Request, n int)
}

func newLibrary(t *testing.T, content []byte) *library {
	t.Helper()
	l := &library{content: content}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.ranges = append(l.ranges, r.Header.Get("Range"))
		n, answer := len(l.ranges), l.answer
		l.mu.Unlock()
		if answer == nil {
			l.serve(w, r)
			return
		}
		answer(w, r, n)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *library) serve(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(l.content))
}

// whole serves everything, whatever part was asked for.
func (l *library) whole(w http.ResponseWriter) {
	w.Header().Set("Content-Length", fmt.Sprint(len(l.content)))
	_, _ = w.Write(l.content)
}

func (l *library) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ranges)
}

// cut is a writer whose connection breaks after so many bytes.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

var hasty = patience{
	Stalled: 5 * time.Second, Nothing: 5 * time.Second, Anew: 5, Pauses: Backoff{First: time.Millisecond, Most: 5 * time.Millisecond},
}

// fetching is a download of a library's image, with what it told.
type fetching struct {
	*download
	said []string
}

func (l *library) fetch(t *testing.T, ctx context.Context, p patience) *fetching { //nolint:revive // the test comes first
	t.Helper()
	f := &fetching{}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	f.download = newDownload(ctx, client, []string{l.URL + "/image?token=hunter2"}, int64(len(l.content)), func(_ float64, message string) {
		f.said = append(f.said, message)
	}, slog.New(slog.DiscardHandler), p)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func pattern(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i * i >> 7)
	}
	return out
}

func isWhole(t *testing.T, l *library, got []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Equal(got, l.content) {
		t.Errorf("got %d of %d bytes, the same: %v; %v", len(got), len(l.content), bytes.Equal(got, l.content), err)
	}
}

// Wherever the connection breaks off, once or again and again, the rest is asked for and the whole is what it was.
func TestADownloadGoesOnWhereItBrokeOff(t *testing.T) {
	const size = 3*mib + 12345
	for _, at := range []int{0, 1, 511, 512, mib - 1, mib, mib + 1, size / 2, size - 1, size} {
		for _, breaks := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d times after %d bytes", breaks, at), func(t *testing.T) {
				l := newLibrary(t, pattern(size))
				l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
					if n <= breaks {
						w = &cut{w, at}
					}
					l.serve(w, r)
				}
				got, err := io.ReadAll(l.fetch(t, t.Context(), hasty))
				isWhole(t, l, got, err)
				have, want := 0, []string{""}
				for range breaks {
					if have += at; have >= size {
						break
					}
					want = append(want, "")
					if have > 0 {
						want[len(want)-1] = fmt.Sprintf("bytes=%d-", have)
					}
				}
				if asked := l.asked(); !slices.Equal(asked, want) {
					t.Errorf("asked for %q, want %q", asked, want)
				}
			})
		}
	}
}

// A server that gives no parts is read from the beginning again, and what was given already is skipped: but not for ever.
func TestADownloadFromAServerWithoutParts(t *testing.T) {
	l := newLibrary(t, pattern(2*mib))
	l.answer = func(w http.ResponseWriter, _ *http.Request, n int) {
		if n <= 4 {
			w = &cut{w, n * 300_000}
		}
		l.whole(w)
	}
	d := l.fetch(t, t.Context(), hasty)
	got, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(d, 10)))
	rest, restErr := io.ReadAll(d)
	isWhole(t, l, append(got, rest...), errors.Join(err, restErr))
	if d.told("writing the image") != "writing the image, its download resumed 4 times" {
		t.Errorf("it says %q", d.told("writing the image"))
	}
	if all := strings.Join(d.said, "\n"); !strings.Contains(all, "gives no parts") || !strings.Contains(all, "after 300000 of") {
		t.Errorf("it told\n%s", all)
	}

	l.answer = func(w http.ResponseWriter, _ *http.Request, n int) { l.whole(&cut{w, n * 100_000}) }
	l.ranges = nil
	d = l.fetch(t, t.Context(), hasty)
	_, err = io.ReadAll(d)
	if fault.CodeOf(err) != fault.DriverError || !strings.Contains(err.Error(), "no parts") || len(l.asked()) != hasty.Anew+2 {
		t.Errorf("asked %d times, got %v", len(l.asked()), err)
	}
	if !errors.Is(d.failure(), err) {
		t.Errorf("the failure is %v", d.failure())
	}
}

// What servers answer to a request for the rest, beside the rest.
func TestOddAnswersToARequestForTheRest(t *testing.T) {
	const half = mib
	for name, test := range map[string]struct {
		second func(l *library, w http.ResponseWriter, r *http.Request)
		want   string // of the error; empty: the download is whole
		asked  int
	}{
		"the rest": {func(l *library, w http.ResponseWriter, r *http.Request) { l.serve(w, r) }, "", 2},
		"the rest of a size that is not told": {func(l *library, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", half, len(l.content)-1))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(l.content[half:])
		}, "", 2},
		"another part": {func(l *library, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(l.content)-1, len(l.content)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(l.content)
		}, "", 3},
		"a part without its place": {func(l *library, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(l.content[half:])
		}, "", 3},
		"no such part, whatever is asked for": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}, "", 3},
		"busy": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0.001")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "", 3},
		"an error of its own": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}, "", 3},
		"less than there is": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes */1000")
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}, "has 1000 bytes", 2},
		"the rest of another file": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", half, 9*mib-1, 9*mib))
			w.WriteHeader(http.StatusPartialContent)
		}, "where", 2},
		"another file": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("gone fishing"))
		}, "has 12 bytes", 2},
		"nothing any more": {func(_ *library, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}, "403", 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t, pattern(2*mib+5))
			l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
				switch n {
				case 1:
					l.serve(&cut{w, half}, r)
				case 2:
					test.second(l, w, r)
				default:
					l.serve(w, r)
				}
			}
			d := l.fetch(t, t.Context(), hasty)
			got, err := io.ReadAll(d)
			if test.want == "" {
				isWhole(t, l, got, err)
			} else if fault.CodeOf(err) != fault.DriverError || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
			if n := len(l.asked()); n != test.asked {
				t.Errorf("asked %d times: %q", n, l.asked())
			}
			if all := fmt.Sprint(err, d.said); strings.Contains(all, "hunter2") || strings.Contains(all, l.URL) {
				t.Errorf("it tells the URL: %s", all)
			}
		})
	}
}

// A server that gives nothing new is given up, one that is not there too; one that says when to come again is not.
func TestADownloadEnds(t *testing.T) {
	p := hasty
	p.Nothing = 2 * time.Second
	t.Run("breaks off at the same place", func(t *testing.T) {
		l := newLibrary(t, pattern(mib))
		l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
			if n > 1 {
				panic(http.ErrAbortHandler)
			}
			l.serve(&cut{w, 1000}, r)
		}
		_, err := io.ReadAll(l.fetch(t, t.Context(), p))
		if fault.CodeOf(err) != fault.DriverError || !strings.Contains(err.Error(), "nothing came for") || len(l.asked()) < 3 {
			t.Errorf("asked %d times, got %v", len(l.asked()), err)
		}
	})
	p.Nothing = 200 * time.Millisecond
	t.Run("is not there", func(t *testing.T) {
		l := newLibrary(t, pattern(mib))
		d := l.fetch(t, t.Context(), p)
		l.Close()
		if err := d.begin(); fault.CodeOf(err) != fault.DriverError || !strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("is busy for long", func(t *testing.T) {
		l := newLibrary(t, pattern(mib))
		began := time.Now()
		l.answer = func(w http.ResponseWriter, r *http.Request, _ int) {
			if time.Since(began) < 2*p.Nothing {
				w.Header().Set("Retry-After", "0.001")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			l.serve(w, r)
		}
		got, err := io.ReadAll(l.fetch(t, t.Context(), p))
		isWhole(t, l, got, err)
	})
	t.Run("with its order", func(t *testing.T) {
		l := newLibrary(t, pattern(mib))
		ctx, cancel := context.WithCancel(t.Context())
		l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 3 {
				cancel()
			}
			l.serve(&cut{w, 1000}, r)
		}
		d := l.fetch(t, ctx, hasty)
		if _, err := io.ReadAll(d); !errors.Is(err, context.Canceled) || d.failure() != nil {
			t.Errorf("got %v, its failure %v", err, d.failure())
		}
	})
}

// A server that stops in the middle and keeps the connection is left, and asked for the rest.
func TestADownloadThatStalls(t *testing.T) {
	l := newLibrary(t, pattern(2*mib))
	l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			l.serve(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(l.content)))
		_, _ = w.Write(l.content[:mib])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	p := hasty
	p.Stalled = 100 * time.Millisecond
	d := l.fetch(t, t.Context(), p)
	got, err := io.ReadAll(d)
	isWhole(t, l, got, err)
	if all := fmt.Sprint(d.said); !strings.Contains(all, "sent nothing for 100ms") {
		t.Errorf("it told %s", all)
	}
}

// The image is what its digest says, whatever came after a break; where it is not, nothing of it boots.
func TestAnImageThatChangesOnItsWay(t *testing.T) {
	content := pattern(5*mib + 100)
	l := newLibrary(t, content)
	sum := sha256.Sum256(content)
	payload, err := json.Marshal(agentcommand.WriteImage{
		URL: l.URL + "/image", Digest: "sha256:" + hex.EncodeToString(sum[:]), Format: "raw", Bytes: int64(len(content)), ReadBack: true,
	})
	check(t, err)
	b := newBox()
	write := func() (string, error) {
		var told []string
		o := orderOf(t, agentcommand.ImageWrite, string(payload))
		o.Progress = func(_ float64, message string) { told = append(told, message) }
		_, _, err := kindsOf(b)[agentcommand.ImageWrite](t.Context(), o)
		return strings.Join(told, "\n"), err
	}
	begins := func() []byte {
		first := make([]byte, mib)
		_, err := b.disks[0].ReadAt(first, 0)
		check(t, err)
		return first
	}

	l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			l.serve(&cut{w, 2*mib + 7}, r)
			return
		}
		other := bytes.Clone(content)
		other[4*mib]++
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(other))
	}
	if _, err := write(); fault.CodeOf(err) != fault.DriverError || !strings.Contains(err.Error(), "digest") {
		t.Errorf("the file changed: %v", err)
	}
	if !bytes.Equal(begins(), make([]byte, mib)) {
		t.Error("something is left that may boot")
	}

	l.ranges = nil
	l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
		if n < 3 {
			w = &cut{w, 2*mib + 7}
		}
		l.serve(w, r)
	}
	told, err := write()
	if check(t, err); !bytes.Equal(begins(), content[:mib]) || !strings.Contains(told, "resumed 2 times") {
		t.Errorf("it told\n%s", told)
	}

	l.ranges = nil
	l.answer = func(w http.ResponseWriter, _ *http.Request, _ int) { w.Header().Set("Content-Length", "7") }
	if _, err := write(); fault.CodeOf(err) != fault.DriverError || !strings.Contains(err.Error(), "has 7 bytes") {
		t.Errorf("another size: %v", err)
	}
	if !bytes.Equal(begins(), content[:mib]) {
		t.Error("the disk was touched for an image that is not there")
	}
}

// filling is a site's cache that has the image only after it was asked a few times.
type filling struct {
	path  string
	asked int
}

func (f *filling) Get(context.Context, string, string) (*os.File, error) {
	if f.asked++; f.asked <= 3 {
		return nil, fault.Wrap(context.DeadlineExceeded, fault.Unavailable, "the image is being fetched")
	}
	return os.Open(f.path)
}

// The site's cache lets a machine wait for what it has not got yet, and gives the rest to one whose connection broke off.
func TestADownloadFromTheSitesCache(t *testing.T) {
	content := pattern(2*mib + 9)
	images := &filling{path: filepath.Join(t.TempDir(), "image")}
	check(t, os.WriteFile(images.path, content, 0o600))
	site := &netboot.Server{Entries: netboot.NewEntries(time.Now), Images: images, Logger: slog.New(slog.DiscardHandler)}
	handler := site.Handler()
	l := newLibrary(t, content)
	l.answer = func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 4 {
			w = &cut{w, mib}
		}
		r.URL.Path = "/images/sha256:" + strings.Repeat("a", 64)
		handler.ServeHTTP(w, r)
	}
	p := hasty
	p.Nothing = time.Nanosecond // whoever is told to come again is patient all the same
	d := l.fetch(t, t.Context(), p)
	check(t, d.begin())
	d.Nothing = hasty.Nothing
	got, err := io.ReadAll(d)
	isWhole(t, l, got, err)
	if asked := l.asked(); !slices.Equal(asked, []string{"", "", "", "", fmt.Sprintf("bytes=%d-", mib)}) {
		t.Errorf("asked for %q", asked)
	}
}
