package plane

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/domain/fault"
)

// gateway is the listener of agents with its server.
type gateway struct {
	agents   *agentapi.Gateway
	listener net.Listener
	server   *http.Server
	url      string
}

// openGateway takes the gateway's port. Its certificate is from the built-in authority.
func (p *plane) openGateway(ctx context.Context, c Config, seen agentapi.Observer) (*gateway, error) {
	listener, err := bind(ctx, c.Gateway.Listen, optionGateway)
	if err != nil {
		return nil, err
	}
	g := &gateway{listener: listener, url: c.Gateway.URL}
	if g.url == "" {
		g.url = "https://" + reachable(listener.Addr())
	}
	names, err := c.Gateway.names(g.url)
	if err == nil {
		g.agents, err = agentapi.New(agentapi.Config{
			Service: p.service, Log: p.stores.Log, DB: p.stores.Pool, Presence: p.presence, CA: p.ca, Secrets: p.secrets,
			Clock: p.clock.Now, Logger: p.logger, Observer: seen,
		})
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	g.server = &http.Server{
		Handler: g.agents.Handler(), TLSConfig: g.agents.TLSConfig(names...), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug),
	}
	return g, nil
}

// names are what the gateway's certificate is for.
func (g Gateway) names(address string) ([]string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fault.New(fault.InvalidConfig, "the gateway's URL %q is not of the form https://host:port", address)
	}
	names := append([]string{u.Hostname()}, g.Names...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// serve answers agents until shutdown.
func (g *gateway) serve() error {
	if err := g.server.ServeTLS(g.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// abandon gives port and goroutines back where a start goes wrong before serve.
func (g *gateway) abandon(ctx context.Context) {
	_ = g.listener.Close()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = g.agents.Close(closing) // nobody was served
}

// shutdown answers the polls that wait, then ends.
func (g *gateway) shutdown(ctx context.Context) error {
	g.agents.Drain()
	err := g.server.Shutdown(ctx)
	if err != nil {
		_ = g.server.Close()
	}
	return errors.Join(err, g.agents.Close(ctx))
}
