package dhcp_test

import (
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/metal/adapters/netboot/dhcp"
	"github.com/better-compute/metal/domain/fault"
)

func server(t *testing.T, leases *dhcp.Leases, known bool) *dhcp.Server {
	t.Helper()
	return &dhcp.Server{
		Site: site(), Known: func(mac string) bool { return known && mac == machine }, Leases: leases,
		Now: func() time.Time { return epoch }, Logger: slog.New(slog.DiscardHandler),
	}
}

// Where answers go (RFC 2131, 4.1).
func TestDestinations(t *testing.T) {
	giaddr := dhcpv4.WithGatewayIP(net.IPv4(10, 0, 0, 254))
	s := server(t, nil, true)
	own := server(t, pool(), true)
	from := netip.MustParseAddrPort("10.0.0.77:1068")
	for name, test := range map[string]struct {
		s    *dhcp.Server
		req  *dhcpv4.DHCPv4
		from netip.AddrPort
		port int
		want string
	}{
		"an offer":               {s, firmware(7, dhcpv4.MessageTypeDiscover), from, 67, "255.255.255.255:68"},
		"through a relay":        {s, firmware(7, dhcpv4.MessageTypeDiscover, giaddr), from, 67, "10.0.0.254:67"},
		"on the proxy port":      {s, firmware(7, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 78))), from, 4011, "10.0.0.77:1068"},
		"there, without address": {s, firmware(7, dhcpv4.MessageTypeRequest), netip.MustParseAddrPort("0.0.0.0:68"), 4011, "255.255.255.255:68"},
		"a renewal":              {own, request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 100))), from, 67, "10.0.0.100:68"},
		"a refusal":              {own, request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 9, 9, 9))), from, 67, "255.255.255.255:68"},
		"information":            {own, request(machine, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 9))), from, 67, "10.0.0.9:68"},
	} {
		packet, to := test.s.Handle(test.req.ToBytes(), test.from, test.port)
		if packet == nil || to.String() != test.want {
			t.Errorf("%s: to %s", name, to)
		}
	}
}

// A server that may not answer now, as another of its site does, still renews the addresses that it gave.
func TestASilentServer(t *testing.T) {
	serves := true
	own, proxy := server(t, pool(), true), server(t, nil, true)
	own.Serves, proxy.Serves = func() bool { return serves }, func() bool { return serves }
	answers := func(s *dhcp.Server, req *dhcpv4.DHCPv4) bool {
		packet, _ := s.Handle(req.ToBytes(), netip.MustParseAddrPort("10.0.0.77:68"), 67)
		return packet != nil
	}
	discover := firmware(7, dhcpv4.MessageTypeDiscover)
	take := request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(10, 0, 0, 100))))
	renew := request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 100)))
	serves = false
	for name, asked := range map[string]bool{
		"an offer by proxy": answers(proxy, discover), "an offer": answers(own, discover), "an address": answers(own, take),
		"an address of another's": answers(own, renew),
	} {
		if asked {
			t.Errorf("it gives %s", name)
		}
	}
	serves = true
	if !answers(proxy, discover) || !answers(own, discover) || !answers(own, take) {
		t.Error("it does not answer with the lease")
	}
	serves = false
	if !answers(own, renew) || answers(own, discover) {
		t.Error("what it gave is not renewed, or more than that is")
	}
}

func TestLeasesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.json")
	start := func() *dhcp.Server {
		s := server(t, pool(), true)
		s.State = path
		if err := s.Load(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	ack := func(s *dhcp.Server, req *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
		data, _ := s.Handle(req.ToBytes(), netip.AddrPort{}, 67)
		if data == nil {
			t.Fatal("no answer")
		}
		p, err := dhcpv4.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	s := start()
	offer := ack(s, request(machine, dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(10, 0, 0, 103)))))
	if _, err := os.Stat(path); err == nil {
		t.Error("an offer is kept")
	}
	given := ack(s, request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr))))
	if given.YourIPAddr.String() != "10.0.0.103" || given.MessageType() != dhcpv4.MessageTypeAck {
		t.Error(given.Summary())
	}
	again := start()
	again.Known = func(string) bool { return false } // its boot entry is over: the OS keeps the address
	renewed := ack(again, request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(given.YourIPAddr)))
	if renewed.MessageType() != dhcpv4.MessageTypeAck || renewed.BootFileName != "" {
		t.Error(renewed.Summary())
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = server(t, pool(), true)
	s.State = path
	if err := s.Load(); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("a damaged file: %v", err)
	}
	s.State = filepath.Join(path, "below-a-file")
	data, _ := s.Handle(request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(10, 0, 0, 101)))).ToBytes(),
		netip.AddrPort{}, 67)
	if data != nil {
		t.Error("a lease was given that can't be kept")
	}
}

// On port 4011 an answer goes back over the socket, whatever else arrives.
func TestServeOnASocket(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	s, ended := server(t, nil, true), make(chan error, 1)
	ctx, cancel := contextOf(t)
	go func() { ended <- s.Serve(ctx, conn, dhcp.PortProxy) }()
	req := firmware(11, dhcpv4.MessageTypeRequest)
	for _, data := range [][]byte{{}, []byte("noise"), make([]byte, 2000), req.ToBytes()} {
		if _, err := client.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	n, err := client.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	p, err := dhcpv4.FromBytes(buffer[:n])
	if err != nil || p.TransactionID != req.TransactionID || fileOf(p) != "arm64-efi/snponly.efi" {
		t.Errorf("%v, %v", p, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// FuzzHandle: whatever comes, what goes out is an answer to it, and only to a machine that is known.
func FuzzHandle(f *testing.F) {
	for _, b := range boots {
		f.Add(firmware(b.arch, dhcpv4.MessageTypeDiscover, b.more...).ToBytes(), true, true)
		f.Add(firmware(b.arch, dhcpv4.MessageTypeRequest, b.more...).ToBytes(), false, false)
	}
	f.Add(request(machine, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 101))).ToBytes(), true, false)
	f.Fuzz(func(t *testing.T, data []byte, own, relay bool) {
		var leases *dhcp.Leases
		if own {
			leases = pool()
		}
		port := dhcp.PortServer
		if relay {
			port = dhcp.PortProxy
		}
		s := server(t, leases, true)
		out, to := s.Handle(data, netip.MustParseAddrPort("10.0.0.9:68"), port)
		if out == nil {
			return
		}
		p, err := dhcpv4.FromBytes(out)
		if err != nil || p.OpCode != dhcpv4.OpcodeBootReply || binary.BigEndian.Uint32(p.TransactionID[:]) != binary.BigEndian.Uint32(data[4:8]) {
			t.Fatalf("%v, %v", p, err)
		}
		if p.ClientHWAddr.String() != machine || !to.IsValid() || (!own && !p.YourIPAddr.IsUnspecified()) {
			t.Errorf("to %s: %s", to, p.Summary())
		}
		if own && !p.YourIPAddr.IsUnspecified() && !strings.HasPrefix(p.YourIPAddr.String(), "10.0.0.10") {
			t.Errorf("an address that is not the pool's: %s", p.Summary())
		}
	})
}
