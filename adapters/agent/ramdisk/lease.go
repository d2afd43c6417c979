package ramdisk

import (
	"context"
	"log/slog"
	"net/netip"
	"time"
)

// lease is what a DHCP server gave a port.
type lease struct {
	address  netip.Prefix
	routes   []route
	servers  []netip.Addr // DNS
	search   []string
	duration time.Duration
}

// route is where packets to a network go.
type route struct {
	to  netip.Prefix
	via netip.Addr // the zero one: the network is on the port itself
}

// leaser asks for leases of one port.
type leaser interface {
	Request(ctx context.Context) (lease, error)
	Renew(ctx context.Context) (lease, error)
}

// port is one port of the machine on its way through leases.
type port struct {
	name  string
	ask   leaser
	apply func(lease) error // puts it in place of the one before
	drop  func(lease)
	log   *slog.Logger
	again time.Duration // between attempts
}

// run gets a lease and keeps it, until ctx ends.
func (p *port) run(ctx context.Context) {
	for ctx.Err() == nil {
		got, err := p.ask.Request(ctx)
		if err == nil {
			err = p.apply(got)
		}
		if err != nil {
			p.log.Debug("no lease", "port", p.name, "error", err)
			pause(ctx, p.again)
			continue
		}
		p.log.Info("address", "port", p.name, "address", got.address.String())
		p.keep(ctx, got)
	}
}

// keep renews a lease from the half of its time on, until it has run out: then nothing of it may be used.
func (p *port) keep(ctx context.Context, got lease) {
	ends := time.Now().Add(got.duration)
	for {
		if !pause(ctx, max(time.Until(ends)/2, p.again)) {
			return
		}
		renewed, err := p.ask.Renew(ctx)
		if err == nil && renewed.address == got.address {
			ends = time.Now().Add(renewed.duration)
			continue
		}
		if ctx.Err() == nil && (err == nil || time.Until(ends) <= 0) {
			p.log.Warn("the lease is lost", "port", p.name, "address", got.address.String(), "error", err)
			p.drop(got)
			return
		}
	}
}
