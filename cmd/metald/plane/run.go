package plane

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/metal/adapters/httpapi"
	"github.com/better-compute/metal/adapters/metrics"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/doctor"
)

// Run runs one replica until ctx ends: opens everything, serves, and closes everything in the opposite order. ready is told
// once it answers.
func Run(ctx context.Context, c Config, ready func(Addresses)) error {
	s, err := openStores(ctx, c.Postgres, c.EventStore, c.Logger, postgres.Migrate)
	if err != nil {
		return err
	}
	defer s.Close()
	secrets, err := postgres.NewSecrets(ctx, s.Pool, c.MasterKey)
	if err != nil {
		return err
	}
	p, err := wire(ctx, c, s, secrets)
	if err != nil {
		return err
	}
	written, err := administered(ctx, p.service, secrets, s.Log, c)
	if err != nil {
		p.gateway.abandon(ctx)
		return err
	}
	listener, address, err := listen(ctx, c)
	if err != nil {
		p.gateway.abandon(ctx)
		return err
	}
	return p.serve(ctx, c, listener, written, func() {
		ready(Addresses{API: address, Gateway: p.gateway.url, CASHA256: p.ca.Fingerprint()})
	})
}

// Free reports whether the addresses of the API and of the gateway can be listened on.
func Free(ctx context.Context, api, gateway string) error {
	for option, address := range map[string]string{optionListen: api, optionGateway: gateway} {
		probe, err := bind(ctx, address, option)
		if err != nil {
			return err
		}
		if err := probe.Close(); err != nil {
			return err
		}
	}
	return nil
}

// The options that name addresses, for whoever has to choose another.
const (
	optionListen  = "--listen"
	optionGateway = "--gateway-listen"
)

func bind(ctx context.Context, address, option string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "can't listen on %s", address).WithRemedy("choose another " + option)
	}
	return listener, nil
}

// listen takes the port, and wraps it in TLS unless a proxy does that.
func listen(ctx context.Context, c Config) (net.Listener, string, error) {
	plain, err := bind(ctx, c.Listen, optionListen)
	if err != nil {
		return nil, "", err
	}
	if c.InsecureHTTP {
		return plain, "http://" + reachable(plain.Addr()), nil
	}
	certificate, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		_ = plain.Close()
		return nil, "", fault.Wrap(err, fault.InvalidConfig, "the TLS certificate and key can't be used")
	}
	secured := tls.NewListener(plain, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"},
	})
	return secured, "https://" + reachable(plain.Addr()), nil
}

// reachable is an address that a client on this machine can use.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// serve answers until ctx ends or a part fails. It stops in an order in which nothing is cut: the feeds, the requests,
// then what the requests wait for.
func (p *plane) serve(ctx context.Context, c Config, listener net.Listener, after event.Position, ready func()) error {
	behind, stopBehind := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBehind()
	feeds, stopFeeds := context.WithCancel(behind)
	defer stopFeeds()
	server := httpapi.Server(c.Listen, p.api)
	server.ErrorLog = slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug)

	parts, failing := errgroup.WithContext(behind)
	parts.Go(func() error { return p.bus.Run(failing) })
	parts.Go(func() error { return p.api.Run(feeds) })
	parts.Go(func() error { return p.clock.Run(failing) })
	parts.Go(func() error { return p.runner.Watch(failing) })
	parts.Go(func() error { return p.workers.Run(failing) })
	parts.Go(func() error { return p.housekeeping(failing) })
	p.awaitPrincipals(ctx, after)
	parts.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	parts.Go(p.gateway.serve)
	ready()
	select {
	case <-ctx.Done():
		p.logger.Info("stopping", "drain", c.Drain)
	case <-failing.Done():
	}
	stopFeeds()
	draining, cancel := context.WithTimeout(behind, c.Drain)
	defer cancel()
	if err := p.gateway.shutdown(draining); err != nil {
		p.logger.Warn("agents were cut off", "after", c.Drain)
	}
	if err := server.Shutdown(draining); err != nil {
		p.logger.Warn("requests were cut off", "after", c.Drain)
		_ = server.Close()
	}
	stopBehind()
	return parts.Wait()
}

// principalsPatience is how long a start waits for the principals' read model; a longer rebuild goes on behind.
const principalsPatience = 15 * time.Second

// awaitPrincipals waits until the read model that knows tokens has what the start itself wrote: a client that finds the
// port open can log in.
func (p *plane) awaitPrincipals(ctx context.Context, written event.Position) {
	ctx, cancel := context.WithTimeout(ctx, principalsPatience)
	defer cancel()
	if err := p.runner.Wait(ctx, authz.Name, written); err != nil {
		p.logger.Warn("serving with principals that are behind the log", "error", err)
	}
}

// observer hands what the API does to the meters.
type observer struct {
	meters *metrics.Metrics
	open   atomic.Int64
}

// Served is httpapi.Observer's.
func (o *observer) Served(method, route string, status int, took time.Duration) {
	o.meters.Request(method, route, status, took)
}

// Refused is httpapi.Observer's.
func (o *observer) Refused(reason string) { o.meters.Refused(reason) }

// Following is httpapi.Observer's.
func (o *observer) Following(change int) { o.open.Add(int64(change)) }

// CutOff is httpapi.Observer's.
func (o *observer) CutOff() { o.meters.CutOff() }

func (o *observer) following() int { return int(o.open.Load()) }

// findings counts what doctor finds, for the meters.
func (p *plane) findings(ctx context.Context) (map[string]int, error) {
	statuses, err := p.runner.Status(ctx)
	if err != nil {
		return nil, err
	}
	found, err := doctor.Findings(ctx, p.stores.Pool, doctor.Input{
		Scope: projections.Everything, Now: time.Now(), Statuses: statuses,
	})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, row := range doctor.Codes {
		counts[string(row.Code)] = 0
	}
	for _, f := range found {
		counts[string(f.Code)]++
	}
	return counts, nil
}
