//go:build netns

package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/pin/tftp/v3"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

const bootURL = "http://" + siteAddress + ":8081"

var images = map[string][]byte{
	"undionly.kpxe": bytes.Repeat([]byte("bios"), 20_000), "snponly.efi": bytes.Repeat([]byte("uefi"), 50_000),
	"arm64-efi/snponly.efi": bytes.Repeat([]byte("arm64"), 40_000),
}

func loaders(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range images {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// machine is a DHCP client on the network.
type machine struct {
	*network
	client *nclient4.Client
}

func (n *network) machine() *machine {
	n.t.Helper()
	m := &machine{network: n}
	err := n.inside("machine", func() (err error) {
		m.client, err = nclient4.New(link, nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(60))
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = m.client.Close() })
	return m
}

func firmware(arch iana.Arch, class string) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(fmt.Sprintf("%s:Arch:%05d:UNDI:003016", class, arch))),
		dhcpv4.WithOption(dhcpv4.OptClientArch(arch)),
	}
}

// discover asks as firmware does, and takes the offer of one server.
func (m *machine) discover(server string, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m.t.Helper()
	ask, err := dhcpv4.NewDiscovery(m.client.InterfaceAddr(), more...)
	if err != nil {
		m.t.Fatal(err)
	}
	offer, err := m.client.SendAndRead(m.t.Context(), nclient4.DefaultServers, ask, nclient4.IsAll(
		nclient4.IsCorrectServer(net.ParseIP(server)), nclient4.IsMessageType(dhcpv4.MessageTypeOffer)))
	if err != nil {
		m.t.Fatalf("no offer of %s: %v", server, err)
	}
	return offer
}

// get fetches a URL from the machine.
func (m *machine) get(from string) []byte {
	m.t.Helper()
	var out []byte
	err := m.inside("machine", func() error {
		u, err := url.Parse(from)
		if err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", u.Host, patience)
		if err != nil {
			return err
		}
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		}}
		answer, err := client.Get(from)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		out, err = io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusOK {
			err = errors.Join(err, errors.New(answer.Status))
		}
		return err
	})
	if err != nil {
		m.t.Fatalf("%s: %v", from, err)
	}
	return out
}

func (m *machine) tftp(server, name string) []byte {
	m.t.Helper()
	var out bytes.Buffer
	err := m.inside("machine", func() error {
		c, err := tftp.NewClient(net.JoinHostPort(server, "69"))
		if err != nil {
			return err
		}
		c.SetBlockSize(1432)
		from, err := c.Receive(name, "octet")
		if err != nil {
			return err
		}
		_, err = from.WriteTo(&out)
		return err
	})
	if err != nil {
		m.t.Fatalf("%s by TFTP: %v", name, err)
	}
	return out.Bytes()
}

// A machine on a network with a DHCP server and a site agent: it gets its address from the one, and what it boots from the
// other, whatever its firmware is.
func TestProxyBesideADHCPServer(t *testing.T) {
	n := newNetwork(t)
	n.site("dhcp", t.TempDir(), "--boot-listen", dhcpAddress+":8081", "--boot-url", "http://"+dhcpAddress+":8081", "--dhcp", "server",
		"--dhcp-unknown", "--dhcp-range", "10.77.0.100-10.77.0.109", "--dhcp-router", "10.77.0.1")
	n.site("site", t.TempDir(), "--boot-listen", siteAddress+":8081", "--boot-url", bootURL, "--dhcp", "proxy", "--dhcp-unknown",
		"--ipxe-dir", loaders(t), "--tftp", siteAddress+":69", "--dhcp-no-ipv6")
	m := n.machine()

	offer := m.discover(dhcpAddress, firmware(iana.EFI_X86_64, "PXEClient")...)
	lease, err := m.client.RequestFromOffer(t.Context(), offer, firmware(iana.EFI_X86_64, "PXEClient")...)
	if err != nil || !strings.HasPrefix(lease.ACK.YourIPAddr.String(), "10.77.0.10") || lease.ACK.BootFileName != "" {
		t.Fatalf("the lease is %v, %v", lease, err)
	}
	n.in("machine", "address", "add", lease.ACK.YourIPAddr.String()+"/24", "dev", link)

	for arch, name := range map[iana.Arch]string{
		iana.INTEL_X86PC: "undionly.kpxe", iana.EFI_X86_64: "snponly.efi", iana.EFI_BC: "snponly.efi", iana.EFI_ARM64: "arm64-efi/snponly.efi",
	} {
		p := m.discover(siteAddress, firmware(arch, "PXEClient")...)
		if !p.YourIPAddr.IsUnspecified() || p.ClassIdentifier() != "PXEClient" || p.BootFileName != name {
			t.Fatalf("%s: %s", arch, p.Summary())
		}
		if got := m.tftp(p.ServerIPAddr.String(), p.BootFileName); !bytes.Equal(got, images[name]) {
			t.Errorf("%s: %d bytes", arch, len(got))
		}
		if ack := m.ask4011(arch, lease.ACK.YourIPAddr); ack.BootFileName != name || ack.MessageType() != dhcpv4.MessageTypeAck {
			t.Errorf("%s on 4011: %s", arch, ack.Summary())
		}
	}
	for arch, name := range map[iana.Arch]string{iana.EFI_X86_64_HTTP: "snponly.efi", iana.EFI_ARM64_HTTP: "arm64-efi/snponly.efi"} {
		p := m.discover(siteAddress, firmware(arch, "HTTPClient")...)
		if got := m.get(p.BootFileNameOption()); p.ClassIdentifier() != "HTTPClient" || !bytes.Equal(got, images[name]) {
			t.Errorf("%s: %d bytes: %s", arch, len(got), p.Summary())
		}
	}
	p := m.discover(siteAddress, append(firmware(iana.EFI_X86_64, "PXEClient"), dhcpv4.WithUserClass("iPXE", false))...)
	if got := string(m.get(p.BootFileNameOption())); got != "#!ipxe\nexit\n" {
		t.Errorf("an unknown machine gets %q: %s", got, p.Summary())
	}
	m.findsNoRouter()
}

// ask4011 asks the ProxyDHCP server directly, as some firmware does once it has an address.
func (m *machine) ask4011(arch iana.Arch, address net.IP) *dhcpv4.DHCPv4 {
	m.t.Helper()
	ask, err := dhcpv4.New(append(firmware(arch, "PXEClient"), dhcpv4.WithHwAddr(m.client.InterfaceAddr()),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(address))...)
	if err != nil {
		m.t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	n := 0
	err = m.inside("machine", func() error {
		conn, err := net.DialUDP("udp4", &net.UDPAddr{Port: 68}, &net.UDPAddr{IP: net.ParseIP(siteAddress), Port: 4011})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		for end := time.Now().Add(patience); ; { // it is asked again where it does not answer, as firmware does
			_, err = conn.Write(ask.ToBytes())
			if err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(2*time.Second))); err != nil {
				return err
			}
			if n, err = conn.Read(buffer); !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
				return err
			}
		}
	})
	if err != nil {
		m.t.Fatalf("port 4011: %v", err)
	}
	ack, err := dhcpv4.FromBytes(buffer[:n])
	if err != nil || ack.TransactionID != ask.TransactionID {
		m.t.Fatalf("port 4011: %v, %v", ack, err)
	}
	return ack
}

// findsNoRouter solicits routers until it is told that there is none. Its interface needs a moment for its own address.
func (m *machine) findsNoRouter() {
	m.t.Helper()
	eventually(m.t, "a router advertisement", func() bool {
		err := m.inside("machine", func() error { return solicit(m.t) })
		return err == nil
	})
}

func solicit(t *testing.T) error {
	found, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	p := ipv6.NewPacketConn(conn)
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterAdvertisement)
	text, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterSolicitation, Body: &icmp.RawBody{Data: make([]byte, 4)}}).Marshal(nil)
	if err != nil {
		return err
	}
	err = errors.Join(p.SetICMPFilter(&only), p.SetControlMessage(ipv6.FlagHopLimit, true), p.SetReadDeadline(time.Now().Add(2*time.Second)))
	if err != nil {
		return err
	}
	_, err = p.WriteTo(text, &ipv6.ControlMessage{HopLimit: 255, IfIndex: found.Index}, &net.IPAddr{IP: net.ParseIP("ff02::2")})
	if err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	n, control, _, err := p.ReadFrom(buffer)
	if err != nil {
		return err
	}
	if n != 16 || control.HopLimit != 255 || !bytes.Equal(buffer[4:16], make([]byte, 12)) {
		t.Errorf("the advertisement is %x, %d hops", buffer[:n], control.HopLimit)
	}
	return nil
}

// The site agent as the DHCP server: unknown machines get nothing; leases outlive a restart.
func TestDHCPServer(t *testing.T) {
	n := newNetwork(t)
	state := t.TempDir()
	args := []string{"--boot-listen", siteAddress + ":8081", "--boot-url", bootURL, "--dhcp", "server", "--dhcp-range",
		"10.77.0.50-10.77.0.59", "--ipxe-dir", loaders(t), "--tftp", "0.0.0.0:69"}
	strict := n.site("site", state, args...)
	m := n.machine()
	ask, err := dhcpv4.NewDiscovery(m.client.InterfaceAddr(), firmware(iana.INTEL_X86PC, "PXEClient")...)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := m.client.SendAndRead(gone, nclient4.DefaultServers, ask, nil)
		answered <- err
	}()
	strict.says("no boot entry and no lease")
	cancel()
	if err := <-answered; err == nil {
		t.Error("an unknown machine was answered")
	}
	strict.stop()

	open := n.site("site", state, append(args, "--dhcp-unknown")...)
	offer := m.discover(siteAddress, firmware(iana.INTEL_X86PC, "PXEClient")...)
	if offer.BootFileName != "undionly.kpxe" || offer.ServerIPAddr.String() != siteAddress || !strings.HasPrefix(offer.YourIPAddr.String(), "10.77.0.5") {
		t.Error(offer.Summary())
	}
	lease, err := m.client.RequestFromOffer(t.Context(), offer)
	if err != nil {
		t.Fatal(err)
	}
	n.in("machine", "address", "add", lease.ACK.YourIPAddr.String()+"/24", "dev", link)
	if got := m.tftp(siteAddress, "undionly.kpxe"); !bytes.Equal(got, images["undionly.kpxe"]) {
		t.Errorf("%d bytes", len(got))
	}
	open.stop()

	n.site("site", state, args...) // strict again: the machine has a lease
	renewed, err := m.client.Renew(t.Context(), lease)
	if err != nil || !renewed.ACK.YourIPAddr.Equal(lease.ACK.YourIPAddr) {
		t.Fatalf("the renewal: %v, %v", renewed, err)
	}
}

// Without root it says what it needs.
func TestPortsNeedRoot(t *testing.T) {
	n := newNetwork(t)
	state := filepath.Join(programs, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(filepath.Dir(state), "token")
	if err := errors.Join(os.WriteFile(token, []byte("a-token"), 0o644), os.Chown(state, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"port 67":            {"--dhcp", "proxy", "--dhcp-interface", link},
		siteAddress + ":69":  {"--tftp", siteAddress + ":69", "--ipxe-dir", filepath.Dir(state)},
		"--boot-listen: :80": {},
	} {
		listen := siteAddress + ":8081"
		if len(args) == 0 {
			listen = ":80"
		}
		err := n.inside("site", func() error {
			cmd := exec.CommandContext(t.Context(), n.bcd, append([]string{
				"site", "--boot-alone", "--gateway", "https://127.0.0.1:1", "--ca-sha256", strings.Repeat("a", 64), "--state-dir", state, "--token-file", token,
				"--boot-listen", listen, "--boot-url", bootURL,
			}, args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), name) || !strings.Contains(string(out), "needs root") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
