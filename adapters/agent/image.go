package agent

import (
	"context"
	"errors"
	"net/url"
	"sync"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
)

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
	source := newDownload(ctx, m.Images, m.sources(ask), ask.Bytes, o.Progress, m.Logger, patient)
	if err := source.begin(); err != nil {
		return nil, nil, err
	}
	defer source.Close() //nolint:errcheck // it was read
	m.written.set("")
	done, err := disk.WriteImage(ctx, root, source, image, func(percent float64, message string) {
		o.Progress(percent, source.told(message))
	})
	if err != nil {
		return nil, nil, errors.Join(source.failure(), err) // what broke off says it best
	}
	key := root.Info().Key()
	m.written.set(key)
	return agentcommand.WrittenImage{
		Disk: key, Path: root.Info().Path, Digest: ask.Digest, Bytes: done.Bytes, ReadBack: done.ReadBack,
	}, nil, nil
}

// sources are where an image may be: what the site's boot servers keep of it, and where it comes from. What names a secret is
// asked for there alone: requests to a boot server travel in the clear.
func (m machine) sources(ask agentcommand.WriteImage) (out []string) {
	if u, err := url.Parse(ask.URL); err == nil && u.User == nil && u.RawQuery == "" {
		for _, site := range m.Sites {
			out = append(out, netboot.ImageURL(site, ask.Digest, ask.URL))
		}
	}
	return append(out, ask.URL)
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
