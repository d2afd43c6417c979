//go:build netns

package ramdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/server6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/domain/node"
)

// alone is set where the test runs in a network of its own.
const alone = "METAL_TEST_NETWORK"

// inItsOwn runs the test once more in a network of its own, and tells whether this is that run.
func inItsOwn(t *testing.T) bool {
	t.Helper()
	if os.Getenv(alone) != "" {
		return true
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), alone+"=yes")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // it ends with this thread
	defer runtime.UnlockOSThread()
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("in a network of its own (root and iproute2 are needed): %v\n%s", err, out)
	}
	return false
}

// Of several ports that are told of a way to everywhere, the one counts that the machine has booted over.
func TestTheWayOutIsWhereTheMachineBootedFrom(t *testing.T) {
	if !inItsOwn(t) {
		return
	}
	n := newNetwork(fstest.MapFS{}, newNeighbors(time.Minute), slog.New(slog.DiscardHandler))
	n.resolvers = filepath.Join(t.TempDir(), "resolv.conf")
	for i := range 3 {
		name := fmt.Sprintf("net%d", i)
		ip(t, "link", "add", name, "type", "veth", "peer", "name", "peer"+strconv.Itoa(i))
		ip(t, "link", "set", "peer"+strconv.Itoa(i), "up")
		ip(t, "link", "set", name, "up")
	}
	for _, boot := range []string{"net1", "net2", ""} {
		want := boot
		if n.boot = ""; boot != "" {
			link, err := net.InterfaceByName(boot)
			if err != nil {
				t.Fatal(err)
			}
			n.boot = strings.ToUpper(link.HardwareAddr.String())
		} else {
			want = "net0"
		}
		for i := range 3 {
			told := lease{
				address: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.2/24", i)),
				routes:  []route{{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr(fmt.Sprintf("10.0.%d.1", i))}},
			}
			name := fmt.Sprintf("net%d", i)
			if err := n.apply(name, name, told); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("ip", "route", "get", "198.51.100.1").Output()
		if err != nil || !strings.Contains(string(out), " dev "+want+" ") {
			t.Errorf("booted over %q: %s, %v", boot, out, err)
		}
		for i := range 3 {
			ip(t, "route", "flush", "dev", fmt.Sprintf("net%d", i))
			ip(t, "addr", "flush", "dev", fmt.Sprintf("net%d", i))
		}
	}
}

// A network with nothing but IPv6: a router that names a prefix and a resolver, a DHCPv6 server, and a switch that speaks LLDP.
// The machine gets both kinds of addresses, keeps them, and reaches what is behind the router.
func TestANetworkOfIPv6Alone(t *testing.T) {
	if !inItsOwn(t) {
		return
	}
	ip(t, "link", "set", "lo", "up")
	ip(t, "link", "add", "net0", "type", "veth", "peer", "name", "net1")
	r := newRouter(t)

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	root := fstest.MapFS{"sys/class/net/net0/carrier": {Data: []byte("1\n")}}
	n := newNetwork(root, newNeighbors(time.Minute), log)
	n.resolvers = filepath.Join(t.TempDir(), "resolv.conf")
	if err := linkUp("net0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { n.serve6(ctx, "net0") })
	running.Go(func() {
		if err := n.neighbors.listen(ctx, root, "net0"); err != nil {
			t.Error(err)
		}
	})
	soon(t, "addresses of the router's prefix and of the DHCPv6 server", func() bool {
		return has(t, "2001:db8:5::/64") && has(t, "2001:db8:6::100/128")
	})
	soon(t, "resolvers", func() bool {
		text, err := os.ReadFile(n.resolvers)
		all := err == nil
		for _, line := range []string{"nameserver 2001:db8:7::53", "nameserver 2001:db8:8::53", "search lab.example"} {
			all = all && bytes.Contains(text, []byte(line+"\n"))
		}
		return all
	})
	soon(t, "a way to the router", func() bool {
		c, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp6", r.listens)
		return err == nil && c.Close() == nil
	})
	nics := []node.NIC{{Name: "net0"}}
	n.neighbors.await(ctx)
	if n.neighbors.add(nics); nics[0].LLDP == nil || nics[0].LLDP.PortID != "net1" {
		t.Errorf("the neighbour is %+v", nics[0].LLDP)
	}
	select {
	case <-r.renewed:
	case <-time.After(2 * time.Minute):
		t.Error("the address is not renewed")
	}
	if !has(t, "2001:db8:6::100/128") {
		t.Error("the address is gone")
	}
}

func ip(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			out, _ := exec.Command("ip", "-6", "address").CombinedOutput()
			t.Fatalf("not in time: %s\n%s", what, out)
		}
		pause(t.Context(), 50*time.Millisecond)
	}
}

// has tells whether the machine has an address within a prefix.
func has(t *testing.T, prefix string) bool {
	t.Helper()
	link, err := net.InterfaceByName("net0")
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := link.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && netip.MustParsePrefix(prefix).Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// router is the other end of the cable, in a network namespace of its own.
type router struct {
	listens string
	renewed chan struct{}
	once    sync.Once
}

func newRouter(t *testing.T) *router {
	t.Helper()
	r := &router{renewed: make(chan struct{})}
	ready, plugged, ended := make(chan error, 1), make(chan struct{}), make(chan struct{})
	thread := 0
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		thread = unix.Gettid()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ready <- err
			return
		}
		ready <- nil
		<-plugged
		ready <- r.serve(t.Context())
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	ip(t, "link", "set", "net1", "netns", strconv.Itoa(thread))
	close(plugged)
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	<-ended
	return r
}

// serve opens everything on the calling thread. What it starts ends with ctx.
func (r *router) serve(ctx context.Context) error {
	for _, words := range []string{
		"link set lo up", "link set net1 up", "-6 address add 2001:db8:9::1/64 dev net1 nodad", "-6 route add 2001:db8:6::/64 dev net1",
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", words, err, out)
		}
	}
	listener, err := net.Listen("tcp6", "[2001:db8:9::1]:0")
	if err != nil {
		return err
	}
	r.listens = listener.Addr().String()
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	dhcp, err := server6.NewServer("net1", nil, r.answer)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = dhcp.Close() })
	go func() { _ = dhcp.Serve() }()
	raw, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return err
	}
	link, err := net.InterfaceByName("net1")
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	go r.speak(ctx, ipv6.NewPacketConn(raw), link, socket)
	return nil
}

// speak advertises, and names the switch's port.
func (r *router) speak(ctx context.Context, conn *ipv6.PacketConn, link *net.Interface, socket int) {
	defer conn.Close()       //nolint:errcheck // nobody minds
	defer unix.Close(socket) //nolint:errcheck // nobody minds
	prefix := "\x03\x04\x40\xc0\x00\x00\x0e\x10\x00\x00\x0e\x10\x00\x00\x00\x00" + string(net.ParseIP("2001:db8:5::"))
	body := "\x40\x80\x07\x08" + strings.Repeat("\x00", 8) + prefix + servers("\x00\x00\x0e\x10", string(net.ParseIP("2001:db8:7::53")))
	text, _ := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: []byte(body)}}).Marshal(nil)
	frame := frameOf(tlv(1, "\x07switch"), tlv(2, "\x05net1"), tlv(3, "\x00\x78"), tlv(0, ""))
	to := &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}
	for ok := true; ok; ok = pause(ctx, time.Second) {
		_, _ = conn.WriteTo(text, &ipv6.ControlMessage{IfIndex: link.Index, HopLimit: hops}, allNodes) // it has no address at first
		_ = unix.Sendto(socket, frame, 0, to)
	}
}

// answer is the DHCPv6 server: one address, for some seconds.
func (r *router) answer(conn net.PacketConn, peer net.Addr, ask dhcpv6.DHCPv6) {
	message, err := ask.GetInnerMessage()
	if err != nil {
		return
	}
	const life = 16 * time.Second // asked for anew at half of it, and gone after it
	more := []dhcpv6.Modifier{
		dhcpv6.WithServerID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}),
		dhcpv6.WithDNS(net.ParseIP("2001:db8:8::53")), dhcpv6.WithDomainSearchList("lab.example"),
		dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP("2001:db8:6::100"), PreferredLifetime: life, ValidLifetime: life}),
	}
	if a := message.Options.OneIANA(); a != nil {
		more = append(more, dhcpv6.WithIAID(a.IaId))
	}
	var reply *dhcpv6.Message
	switch message.MessageType {
	case dhcpv6.MessageTypeSolicit: // a server that knows no short cut
		reply, err = dhcpv6.NewAdvertiseFromSolicit(message, more...)
	case dhcpv6.MessageTypeRenew:
		r.once.Do(func() { close(r.renewed) })
		reply, err = dhcpv6.NewReplyFromMessage(message, more...)
	case dhcpv6.MessageTypeRequest:
		reply, err = dhcpv6.NewReplyFromMessage(message, more...)
	default:
		err = errors.New("not asked for here")
	}
	if err == nil {
		_, _ = conn.WriteTo(reply.ToBytes(), peer) // asked again where it is lost
	}
}
