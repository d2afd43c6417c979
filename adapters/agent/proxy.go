package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

const (
	proxyWithin = 30 * time.Second // where the order does not say
	proxyMost   = 5 * time.Minute
	proxyBytes  = 96 << 10 // of an answer's body: the control plane takes results of 200 KiB
)

// siteHTTPProxy sends exactly one request to a machine. Nothing that the site agent can reach besides machines may be
// reached through it: where the request goes is looked at after the name was resolved, and once more as it connects.
func siteHTTPProxy(limits ProxyLimits) Handler {
	return func(ctx context.Context, o Order) (any, func(context.Context) error, error) {
		ask, err := decode[agentcommand.HTTPProxy](o)
		if err != nil {
			return nil, nil, err
		}
		within := ask.Timeout.Duration()
		if within <= 0 {
			within = proxyWithin
		}
		ctx, cancel := context.WithTimeout(ctx, min(within, proxyMost))
		defer cancel()
		out, err := limits.send(ctx, ask)
		return out, nil, err
	}
}

func (l ProxyLimits) send(ctx context.Context, ask agentcommand.HTTPProxy) (any, error) {
	target, err := url.Parse(ask.URL)
	if err != nil || target.User != nil {
		return nil, fault.Invalid(fault.Issue{Path: "url", Message: "is not a URL, or holds a name and password"})
	}
	guard, err := l.guard(ctx)
	if err != nil {
		return nil, err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", target.Hostname())
	if err != nil {
		return nil, fault.Wrap(err, fault.DriverError, "the machine's name can't be resolved")
	}
	for _, a := range addresses {
		if err := guard.check(a); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, ask.Method, ask.URL, bytes.NewReader(ask.Body))
	if err != nil {
		return nil, fault.Invalid(fault.Issue{Path: "method", Message: "is not one of HTTP"})
	}
	for name, value := range ask.Header {
		if hopByHop[http.CanonicalHeaderKey(name)] {
			return nil, fault.Invalid(fault.Issue{Path: "header." + name, Message: "is not the caller's to set"})
		}
		req.Header.Set(name, value)
	}
	client := guard.client()
	defer client.CloseIdleConnections()
	answer, err := client.Do(req)
	if err != nil {
		return nil, proxyFault(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	return proxied(answer)
}

func proxied(answer *http.Response) (any, error) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, proxyBytes+1))
	if err != nil {
		return nil, proxyFault(err)
	}
	if len(body) > proxyBytes {
		return nil, fault.New(fault.DriverError, "the machine's answer is larger than %d bytes", proxyBytes)
	}
	out := agentcommand.HTTPProxied{Status: answer.StatusCode, Header: map[string]string{}, Body: body}
	for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
		out.Header[name] = strings.Join(answer.Header.Values(name), ", ")
	}
	return out, nil
}

// proxyFault keeps what the guard said, and a deadline; of anything else it tells the innermost reason.
func proxyFault(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.Timeout, "the machine did not answer in time")
	}
	return fault.Wrap(err, fault.DriverError, "the request to the machine failed: %v", withoutURL(err))
}

// hopByHop are the headers that belong to a connection.
var hopByHop = map[string]bool{
	"Connection": true, "Host": true, "Keep-Alive": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
}

// guard decides which addresses may be reached.
type guard struct {
	allow, deny []netip.Prefix
	own         []netip.Addr // the agent's host and the control plane
}

// neverMachines are ranges in which no machine is, and other things may be.
var neverMachines = prefixes(
	"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", // this host, link-local with metadata, multicast
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", // metadata services outside of link-local
	"::/128", "::1/128", "fe80::/10", "ff00::/8", "fd00:ec2::254/128", "fd20:ce::254/128",
	"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", // IPv4 in disguise
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// guard looks up what is ours now: addresses change.
func (l ProxyLimits) guard(ctx context.Context) (guard, error) {
	g := guard{allow: l.Allow, deny: slices.Concat(neverMachines, l.Deny)}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return g, fault.Wrap(err, fault.Unavailable, "the agent's own addresses can't be listed")
	}
	for _, i := range interfaces {
		if p, err := netip.ParsePrefix(i.String()); err == nil {
			g.own = append(g.own, p.Addr().Unmap())
		}
	}
	for _, host := range l.Hosts {
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return g, fault.Wrap(err, fault.Unavailable, "the control plane's addresses can't be looked up")
		}
		for _, a := range found {
			g.own = append(g.own, a.Unmap())
		}
	}
	return g, nil
}

func (g guard) check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	if slices.ContainsFunc(g.allow, in) {
		return nil
	}
	if slices.ContainsFunc(g.deny, in) || slices.Contains(g.own, a) {
		return fault.New(fault.Forbidden, "the address is not one of a machine").WithDetail("address", a.String()).
			WithRemedy("if a machine really has this address, allow it in the site agent's options")
	}
	return nil
}

// client sends one request: it follows no redirect, uses no proxy, and keeps no connection.
func (g guard) client() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fault.Wrap(err, fault.Internal, "an address that is none")
		}
		return g.check(to.Addr())
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: 32 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
