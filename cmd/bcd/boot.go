package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/netboot/cache"
	"github.com/better-compute/metal/adapters/netboot/dhcp"
	"github.com/better-compute/metal/adapters/netboot/limit"
	"github.com/better-compute/metal/adapters/netboot/tftp"
	"github.com/better-compute/metal/domain/fault"
)

var errSize = errors.New("a number of bytes is needed, such as 500M or 50G")

func listed(names []string) string {
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// boot is network boot, with everything opened that can be refused.
type boot struct {
	c       siteConfig
	entries *netboot.Entries
	server  *netboot.Server
	lease   *netboot.Lease // of the site's network boot
	answers *netboot.Lease // while which machines are answered; nil: always
	logger  *slog.Logger

	rate     *limit.Rate
	loaders  fs.FS
	cached   *cache.Cache
	closes   []func() error
	services []func(context.Context) error
}

// For each machine: firmware asks for one file at a time, an OS for a few.
const (
	eachByHTTP = 8
	eachByTFTP = 4
	turnByHTTP = 2 * time.Minute
	turnByTFTP = 3 * time.Second // firmware asks again, or gives up, a little later
)

// openBoot opens all that was asked for, so that what can't work is told at the start.
func openBoot(ctx context.Context, c siteConfig, logger *slog.Logger) (*boot, error) {
	entries, err := netboot.OpenEntries(filepath.Join(c.stateDir, "boot-entries.json"), time.Now)
	if err != nil {
		return nil, err
	}
	b := &boot{c: c, entries: entries, lease: netboot.NewLease(time.Now), logger: logger, rate: limit.NewRate(int64(c.boot.rate))}
	if !c.boot.alone {
		b.answers = b.lease
	}
	for _, open := range []func(context.Context) error{b.openFiles, b.openCache, b.openHTTP, b.openTFTP, b.openDHCP} {
		if err := open(ctx); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// close closes what was opened, once nothing serves any more.
func (b *boot) close() {
	for _, end := range slices.Backward(b.closes) {
		_ = end() // sockets are closed already where they were served
	}
}

// serve runs until ctx ends or a part fails.
func (b *boot) serve(ctx context.Context) error {
	defer b.close()
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range b.services {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

func (b *boot) openFiles(context.Context) error {
	if b.c.boot.loaders == "" {
		return nil
	}
	root, err := os.OpenRoot(b.c.boot.loaders)
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "--ipxe-dir: %v", err)
	}
	b.closes, b.loaders = append(b.closes, root.Close), root.FS()
	return nil
}

func (b *boot) openCache(context.Context) (err error) {
	if b.c.boot.cacheDir == "" {
		return nil
	}
	b.cached, err = cache.Open(cache.Options{
		Dir: b.c.boot.cacheDir, Bytes: int64(b.c.boot.cacheSize), From: b.c.boot.cacheFrom, Downloads: 4, Pause: 5 * time.Second,
		Client: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableCompression: true, ResponseHeaderTimeout: time.Minute,
			TLSHandshakeTimeout: 10 * time.Second, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		}},
		Now: time.Now, Logger: b.logger,
	})
	if err == nil {
		b.closes = append(b.closes, func() error { b.cached.Close(); return nil })
	}
	return err
}

func (b *boot) openHTTP(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.c.boot.listen)
	if errors.Is(err, os.ErrPermission) {
		return fault.Wrap(err, fault.InvalidConfig, "--boot-listen: %s needs root, or the capability NET_BIND_SERVICE", b.c.boot.listen)
	}
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "--boot-listen: %v", err)
	}
	b.closes = append(b.closes, listener.Close)
	b.server = &netboot.Server{
		Entries: b.entries, Gateway: cmp.Or(b.c.boot.gateway, b.c.gateway), CA: b.c.ca, URL: b.c.boot.url, Media: b.c.boot.media,
		Lease: b.answers, Logger: b.logger, Loaders: b.loaders,
		Transfers: limit.NewTransfers(b.c.boot.transfers, eachByHTTP, turnByHTTP), Rate: b.rate,
	}
	if b.c.boot.files != "" {
		b.server.Files = os.DirFS(b.c.boot.files)
	}
	if b.cached != nil {
		b.server.Images = b.cached
	}
	b.services = append(b.services, func(ctx context.Context) error { return b.serveHTTP(ctx, listener) })
	return nil
}

func (b *boot) serveHTTP(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: b.server.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(b.logger.Handler(), slog.LevelDebug),
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() }) // machines ask again
	defer stopped()
	b.logger.Info("serving network boot", "address", listener.Addr().String(), "url", b.c.boot.url)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fault.Wrap(err, fault.Unavailable, "the boot server ended: %v", err)
	}
	return nil
}

func (b *boot) openTFTP(ctx context.Context) error {
	if b.c.boot.tftp == "" {
		return nil
	}
	conn, err := tftp.Listen(ctx, b.c.boot.tftp)
	if err != nil {
		return err
	}
	b.closes = append(b.closes, conn.Close)
	server := &tftp.Server{
		Files: b.loaders, Serves: b.answers.Held, Transfers: limit.NewTransfers(b.c.boot.transfers, eachByTFTP, turnByTFTP),
		Rate: b.rate, Logger: b.logger,
	}
	b.logger.Info("serving TFTP", "address", conn.LocalAddr().String(), "directory", b.c.boot.loaders)
	b.services = append(b.services, func(ctx context.Context) error { return server.Serve(ctx, conn) })
	return nil
}

func (b *boot) openDHCP(ctx context.Context) error {
	if b.c.boot.dhcp == dhcpOff {
		return nil
	}
	site, err := b.c.boot.site()
	if err != nil {
		return err
	}
	if b.loaders != nil {
		site.Loaders = dhcp.FindLoaders(b.loaders)
	}
	server := &dhcp.Server{Site: site, Known: b.known, Serves: b.answers.Held, Now: time.Now, Logger: b.logger}
	ports := []int{dhcp.PortServer, dhcp.PortProxy}
	if b.c.boot.dhcp == dhcpServer {
		ports = ports[:1]
		first, last, _ := b.c.boot.bounds()
		server.Leases = dhcp.NewLeases(first, last, append(slices.Clone(site.Routers), site.Address)...)
		server.State = filepath.Join(b.c.stateDir, "dhcp-leases.json")
		if err := server.Load(); err != nil {
			return err
		}
	}
	for _, port := range ports {
		conn, err := dhcp.Listen(ctx, b.c.boot.link, port)
		if err != nil {
			return err
		}
		b.closes = append(b.closes, conn.Close)
		b.services = append(b.services, func(ctx context.Context) error { return server.Serve(ctx, conn, port) })
	}
	b.logger.Info("serving DHCP", "as", b.c.boot.dhcp, "interface", b.c.boot.link, "address", site.Address.String(),
		"loaders", site.Loaders)
	return b.openSolicitations(ctx)
}

func (b *boot) openSolicitations(ctx context.Context) error {
	if !b.c.boot.quiet {
		return nil
	}
	s, err := dhcp.ListenSolicitations(ctx, b.c.boot.link, b.logger)
	if err != nil {
		return err
	}
	b.closes = append(b.closes, s.Close)
	b.services = append(b.services, s.Serve)
	return nil
}

// known tells whether a machine has a boot entry.
func (b *boot) known(mac string) bool {
	_, _, ok := b.entries.Find(mac)
	return ok
}
