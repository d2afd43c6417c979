package dhcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/metal/adapters/statefile"
	"github.com/better-compute/metal/domain/fault"
)

// Server answers on sockets.
type Server struct {
	Site   Site
	Known  func(mac string) bool // whether the machine has a boot entry
	Serves func() bool           // whether this server of several answers now; nil: it is alone
	Leases *Leases               // nil: ProxyDHCP
	State  string                // file that keeps the leases; empty: none
	Now    func() time.Time
	Logger *slog.Logger

	mu   sync.Mutex // of Leases and kept
	kept []Lease
}

// Load reads the leases of an earlier run.
func (s *Server) Load() error {
	if s.State == "" {
		return nil
	}
	text, err := os.ReadFile(s.State)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the leases can't be read: %v", err)
	}
	var leases []Lease
	if err := json.Unmarshal(text, &leases); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the leases in %s are damaged: %v", s.State, err).
			WithRemedy("take the file away: machines then get addresses anew")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Leases.Restore(leases)
	s.kept = s.Leases.All()
	return nil
}

// packetMost is the size of the largest packet that is read.
const packetMost = 4096

// Serve answers what comes to one port, until ctx ends or the socket fails.
func (s *Server) Serve(ctx context.Context, conn net.PacketConn, port int) error {
	stopped := context.AfterFunc(ctx, func() { _ = conn.Close() }) // nothing was promised to anybody
	defer stopped()
	buffer := make([]byte, packetMost)
	for {
		n, from, err := conn.ReadFrom(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fault.Wrap(err, fault.Unavailable, "the socket of port %d was closed", port)
		case err != nil: // an unreachable machine's ICMP, a link that is down
			s.Logger.Warn("DHCP can't read", "port", port, "error", err)
			if pause(ctx, time.Second) != nil {
				return nil
			}
			continue
		}
		packet, to := s.Handle(buffer[:n], addrPort(from), port)
		if packet == nil {
			continue
		}
		if _, err := conn.WriteTo(packet, net.UDPAddrFromAddrPort(to)); err != nil && ctx.Err() == nil {
			s.Logger.Warn("a DHCP answer can't be sent", "to", to.String(), "error", err)
		}
	}
}

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

func addrPort(a net.Addr) netip.AddrPort {
	if udp, ok := a.(*net.UDPAddr); ok {
		p := udp.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// Handle answers one packet; nil: not at all.
func (s *Server) Handle(data []byte, from netip.AddrPort, port int) ([]byte, netip.AddrPort) {
	req, err := dhcpv4.FromBytes(data)
	if err != nil {
		s.Logger.Debug("what came is not DHCP", "from", from.String(), "error", err)
		return nil, netip.AddrPort{}
	}
	mac := req.ClientHWAddr.String()
	known := s.Known(mac)
	var answer Answer
	switch {
	case s.Serves != nil && !s.Serves() && !s.renews(req):
		answer = silence("another server of this site answers")
	case s.Leases == nil:
		answer = s.Site.Proxy(req, port, known)
	default:
		answer = s.serve(req, known)
	}
	if answer.Packet == nil {
		s.Logger.Debug("no DHCP answer", "mac", mac, "asked", req.MessageType().String(), "why", answer.Why)
		return nil, netip.AddrPort{}
	}
	s.Logger.Info("DHCP", "mac", mac, "asked", req.MessageType().String(), "answer", answer.Why)
	return answer.Packet.ToBytes(), destination(req, answer.Packet, from, port)
}

// renews tells whether a machine only wants to keep an address that it has from this server: it may, whoever serves network boot.
func (s *Server) renews(req *dhcpv4.DHCPv4) bool {
	if s.Leases == nil || req.MessageType() != dhcpv4.MessageTypeRequest || !address(req.ClientIPAddr).IsValid() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Leases.Has(req.ClientHWAddr.String())
}

// serve answers only with leases that are on record, so that no restart gives an address to two machines.
func (s *Server) serve(req *dhcpv4.DHCPv4, known bool) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.Site.Serve(req, known, s.Leases, s.Now())
	if s.State == "" {
		return answer
	}
	if all := s.Leases.All(); !slices.Equal(all, s.kept) {
		if err := keep(s.State, all); err != nil {
			s.Logger.Error("the leases can't be kept", "file", s.State, "error", err)
			return silence("its lease can't be kept")
		}
		s.kept = all
	}
	return answer
}

func keep(path string, leases []Lease) error {
	text, err := json.Marshal(leases)
	if err != nil {
		return err
	}
	return statefile.Replace(path, text)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// destination is where an answer goes (RFC 2131, 4.1). A machine that has no address yet is reached by broadcast, which all
// firmware understands and which needs no entry in the table of neighbours.
func destination(req, answer *dhcpv4.DHCPv4, from netip.AddrPort, port int) netip.AddrPort {
	relay, client := address(req.GatewayIPAddr), address(req.ClientIPAddr)
	switch {
	case port == PortProxy && from.Addr().IsValid() && !from.Addr().IsUnspecified():
		return from
	case relay.IsValid():
		return netip.AddrPortFrom(relay, PortServer)
	case client.IsValid() && answer.MessageType() != dhcpv4.MessageTypeNak:
		return netip.AddrPortFrom(client, PortClient)
	}
	return netip.AddrPortFrom(broadcast, PortClient)
}

// Listen opens a port on one interface.
func Listen(ctx context.Context, link string, port int) (net.PacketConn, error) {
	config := net.ListenConfig{Control: bindTo(link)}
	conn, err := config.ListenPacket(ctx, "udp4", netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)).String())
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fault.Wrap(err, fault.InvalidConfig,
			"port %d on %s needs root, or CAP_NET_BIND_SERVICE and CAP_NET_RAW", port, link).
			WithRemedy("run it as root, or give it the capabilities, such as with AmbientCapabilities= of its systemd unit")
	case err != nil && strings.Contains(err.Error(), "address already in use"):
		return nil, fault.Wrap(err, fault.InvalidConfig, "port %d is in use on this host", port).
			WithRemedy("another DHCP server runs here: stop it, or run the site agent on another host of the network")
	case err != nil:
		return nil, fault.Wrap(err, fault.InvalidConfig, "port %d on %s: %v", port, link, err)
	}
	return conn, nil
}
