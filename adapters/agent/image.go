package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// stalled is how long an image's server may send nothing.
const stalled = time.Minute

// written remembers the disk that holds the OS of this boot, for boot.kexec.
type written struct {
	mu  sync.Mutex
	key string
}

func (w *written) set(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.key = key
}

func (w *written) get() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.key
}

// writeImage streams an image to the root disk, with its config drive.
func (m machine) writeImage(ctx context.Context, o Order) (any, func(context.Context) error, error) {
	ask, err := decode[agentcommand.WriteImage](o)
	if err != nil {
		return nil, nil, err
	}
	image := disk.Image{
		Digest: ask.Digest, Format: ask.Format, Bytes: ask.Bytes, Signature: ask.Signature, Signer: ask.Signer, ReadBack: ask.ReadBack,
	}
	if image.Config, err = configOf(ctx, o, ask); err != nil {
		return nil, nil, err
	}
	devices, err := m.Machine.Disks(ctx)
	if err != nil {
		return nil, nil, machineFault(err, "list the disks")
	}
	root, err := disk.ChooseRoot(devices, ask.Disk, ask.Bytes)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := m.open(ctx, ask.URL, cancel)
	if err != nil {
		return nil, nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	m.written.set("")
	done, err := disk.WriteImage(ctx, root, body, image, o.Progress)
	if err != nil {
		if errors.Is(context.Cause(ctx), errStalled) {
			err = errStalled
		}
		return nil, nil, err
	}
	key := root.Info().Key()
	m.written.set(key)
	return agentcommand.WrittenImage{
		Disk: key, Path: root.Info().Path, Digest: ask.Digest, Bytes: done.Bytes, ReadBack: done.ReadBack,
	}, nil, nil
}

// configOf fetches the user data. An image without any still gets a config drive where it has a host name.
func configOf(ctx context.Context, o Order, ask agentcommand.WriteImage) (*disk.Config, error) {
	if ask.UserDataRef == "" && ask.Hostname == "" {
		return nil, nil
	}
	c := &disk.Config{Kind: ask.UserData, Hostname: ask.Hostname, Instance: o.ID}
	if ask.UserDataRef != "" {
		value, err := o.Secret(ctx, ask.UserDataRef)
		if err != nil {
			return nil, err
		}
		c.UserData = value
	}
	return c, nil
}

var errStalled = fault.New(fault.DriverError, "the image's server sent nothing for %s", stalled)

// open begins to fetch an image. A server that stalls ends ctx.
func (m machine) open(ctx context.Context, url string, cancel context.CancelCauseFunc) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fault.Invalid(fault.Issue{Path: "url", Message: "is not a URL"})
	}
	answer, err := m.Images.Do(req)
	if err != nil {
		return nil, fault.Wrap(withoutURL(err), fault.DriverError, "the image can't be fetched: %v", withoutURL(err))
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close() // nothing of it is wanted
		return nil, fault.New(fault.DriverError, "the image's server answered %s", answer.Status)
	}
	return &watched{body: answer.Body, timer: time.AfterFunc(stalled, func() { cancel(errStalled) })}, nil
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
	body  io.ReadCloser
	timer *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(stalled)
	n, err := w.body.Read(p)
	w.timer.Stop() // what is written meanwhile takes its time
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	return w.body.Close()
}
