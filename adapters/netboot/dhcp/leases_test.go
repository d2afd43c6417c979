package dhcp_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/netboot/dhcp"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

func addr(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(last)}) }

// pool has 10.0.0.100 to 10.0.0.103, without .102.
func pool() *dhcp.Leases { return dhcp.NewLeases(addr(100), addr(103), addr(102)) }

func wants(last int) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr(last).AsSlice()))
}

func from(last int) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(addr(last).AsSlice()))
}

func has(last int) dhcpv4.Modifier { return dhcpv4.WithClientIP(addr(last).AsSlice()) }

// One machine after the other on one pool; what each is told.
func TestServe(t *testing.T) {
	const other = "02:00:00:00:00:02"
	const (
		none = dhcpv4.MessageTypeNone
		ack  = dhcpv4.MessageTypeAck
		nak  = dhcpv4.MessageTypeNak
		give = dhcpv4.MessageTypeOffer
	)
	type step struct {
		name    string
		mac     string
		kind    dhcpv4.MessageType
		more    []dhcpv4.Modifier
		known   bool
		after   time.Duration
		want    dhcpv4.MessageType
		address string
	}
	leases, now := pool(), epoch
	for _, s := range []step{
		{"unknown: nothing", machine, dhcpv4.MessageTypeDiscover, nil, false, 0, none, ""},
		{"known: what it wants", machine, dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{wants(101)}, true, 0, give, "10.0.0.101"},
		{"the same again", machine, dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{wants(103)}, true, 0, give, "10.0.0.101"},
		{"an offer is no lease", machine, dhcpv4.MessageTypeDiscover, nil, false, 0, none, ""},
		{"it takes another server's", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(101), from(9)}, true, 0, none, ""},
		{"another may have it", other, dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{wants(101)}, true, 0, give, "10.0.0.101"},
		{"it takes it", other, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(101), from(2)}, true, 0, ack, "10.0.0.101"},
		{"not the first any more", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(101), from(2)}, true, 0, nak, ""},
		{"nor what is reserved", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(102)}, true, 0, nak, ""},
		{"nor what is elsewhere", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(99)}, true, 0, nak, ""},
		{"nor nothing", machine, dhcpv4.MessageTypeRequest, nil, true, 0, nak, ""},
		{"after a restart of ours", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(100)}, true, 0, ack, "10.0.0.100"},
		{"its OS renews", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{has(100)}, false, time.Hour / 2, ack, "10.0.0.100"},
		{"its OS starts", machine, dhcpv4.MessageTypeDiscover, nil, false, 0, give, "10.0.0.100"},
		{"the last one", "02:00:00:00:00:03", dhcpv4.MessageTypeDiscover, nil, true, 0, give, "10.0.0.103"},
		{"no more", "02:00:00:00:00:04", dhcpv4.MessageTypeDiscover, nil, true, 0, none, ""},
		{"an offer not taken", "02:00:00:00:00:04", dhcpv4.MessageTypeDiscover, nil, true, time.Minute, give, "10.0.0.103"},
		{"one that ran out", "02:00:00:00:00:05", dhcpv4.MessageTypeDiscover, nil, true, 29 * time.Minute, give, "10.0.0.103"},
		{"the next that ran out", "02:00:00:00:00:06", dhcpv4.MessageTypeDiscover, nil, true, 0, give, "10.0.0.101"},
		{"released by who has it not", other, dhcpv4.MessageTypeRelease, []dhcpv4.Modifier{has(100)}, true, 0, none, ""},
		{"still the first's", "02:00:00:00:00:07", dhcpv4.MessageTypeDiscover, nil, true, 0, none, ""},
		{"released", machine, dhcpv4.MessageTypeRelease, []dhcpv4.Modifier{has(100)}, true, 0, none, ""},
		{"kept in mind", machine, dhcpv4.MessageTypeDiscover, nil, false, 0, give, "10.0.0.100"},
		{"bound again", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(100)}, false, 0, ack, "10.0.0.100"},
		{"declined by another", other, dhcpv4.MessageTypeDecline, []dhcpv4.Modifier{wants(100)}, true, 0, none, ""},
		{"still its own", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{has(100)}, false, 0, ack, "10.0.0.100"},
		{"declined", machine, dhcpv4.MessageTypeDecline, []dhcpv4.Modifier{wants(100)}, true, 0, none, ""},
		{"nobody's now", machine, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(100)}, true, 0, nak, ""},
		{"information", machine, dhcpv4.MessageTypeInform, []dhcpv4.Modifier{has(9)}, true, 0, ack, "0.0.0.0"},
		{"through a relay of this network", "02:00:00:00:00:08", dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithGatewayIP(net.IPv4(10, 0, 0, 254))}, true, time.Hour, give, ""},
		{"through one of another", machine, dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithGatewayIP(net.IPv4(10, 0, 9, 254))}, true, 0, none, ""},
		{"who answers", machine, dhcpv4.MessageTypeOffer, nil, true, 0, none, ""},
	} {
		now = now.Add(s.after)
		req := request(s.mac, s.kind, s.more...)
		answer := site().Serve(req, s.known, leases, now)
		if answer.Packet == nil {
			if s.want != none || answer.Why == "" {
				t.Errorf("%s: silence: %s", s.name, answer.Why)
			}
			continue
		}
		p := wire(t, answer.Packet)
		conforms(t, req, p)
		if p.MessageType() != s.want || (s.address != "" && p.YourIPAddr.String() != s.address) {
			t.Errorf("%s: %s of %s", s.name, p.MessageType(), p.YourIPAddr)
		}
		checkConfiguration(t, s.name, p)
	}
}

// checkConfiguration looks at what goes with an address.
func checkConfiguration(t *testing.T, name string, p *dhcpv4.DHCPv4) {
	t.Helper()
	got := fmt.Sprint(p.SubnetMask(), p.Router(), p.DNS(), p.IPAddressLeaseTime(0), p.IPAddressRenewalTime(0), p.IPAddressRebindingTime(0))
	want := "ffffff00 [10.0.0.1] [10.0.0.53] 1h0m0s 30m0s 52m30s"
	switch {
	case p.MessageType() == dhcpv4.MessageTypeNak:
		want = "<nil> [] [] 0s 0s 0s"
		if p.Message() == "" || !p.YourIPAddr.IsUnspecified() {
			t.Errorf("%s: %s", name, p.Summary())
		}
	case p.YourIPAddr.IsUnspecified():
		want = "ffffff00 [10.0.0.1] [10.0.0.53] 0s 0s 0s"
	}
	if got != want {
		t.Errorf("%s: %s", name, got)
	}
}

func TestServeForEveryFirmware(t *testing.T) {
	for _, test := range boots {
		leases := pool()
		for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest} {
			req := firmware(test.arch, kind, append(test.more[:len(test.more):len(test.more)], wants(101))...)
			p := wire(t, site().Serve(req, true, leases, epoch).Packet)
			conforms(t, req, p)
			if p.YourIPAddr.String() != "10.0.0.101" {
				t.Errorf("%s: an address for everybody: %s", test.name, p.Summary())
			}
			checkBoot(t, p, test.file, cmpOr(test.server, "0.0.0.0"), test.class)
			if waits := p.Options.Get(dhcpv4.GenericOptionCode(175)) == nil; waits != (fileOf(p) != "http://10.0.0.2:8081/boot/"+machine) {
				t.Errorf("%s: option 175: %v", test.name, waits)
			}
		}
		// Without a boot entry it keeps its address and goes on to the next boot device.
		p := wire(t, site().Serve(firmware(test.arch, dhcpv4.MessageTypeDiscover, test.more...), false, leases, epoch).Packet)
		if fileOf(p) != "" || p.ClassIdentifier() != "" || p.YourIPAddr.String() != "10.0.0.101" {
			t.Errorf("%s, without an entry: %s", test.name, p.Summary())
		}
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// Whatever machines do, no address is two machines' at once, all are the pool's, and a restart changes nothing.
func TestNoAddressIsTwoMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases, now := pool(), epoch
		holds := map[string]netip.Addr{} // what each machine believes to have
		until := map[string]time.Time{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2400).Draw(t, "seconds")) * time.Second)
			mac := fmt.Sprintf("02:00:00:00:00:%02x", rapid.IntRange(1, 6).Draw(t, "machine"))
			last := rapid.IntRange(98, 105).Draw(t, "address")
			switch rapid.SampledFrom([]string{"discover", "request", "release", "decline", "restart"}).Draw(t, "what") {
			case "discover":
				site().Serve(request(mac, dhcpv4.MessageTypeDiscover, wants(last)), true, leases, now)
			case "request":
				p := site().Serve(request(mac, dhcpv4.MessageTypeRequest, wants(last)), true, leases, now).Packet
				if p.MessageType() != dhcpv4.MessageTypeAck {
					continue
				}
				holds[mac], until[mac] = addr(last), now.Add(time.Hour)
				if last < 100 || last > 103 || last == 102 {
					t.Fatalf("%s got .%d", mac, last)
				}
			case "release":
				if !holds[mac].IsValid() {
					continue
				}
				a := holds[mac].AsSlice()
				site().Serve(request(mac, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(a)), true, leases, now)
				delete(holds, mac)
			case "decline":
				if !holds[mac].IsValid() {
					continue
				}
				a := dhcpv4.OptRequestedIPAddress(holds[mac].AsSlice())
				site().Serve(request(mac, dhcpv4.MessageTypeDecline, dhcpv4.WithOption(a)), true, leases, now)
				delete(holds, mac)
			case "restart":
				kept := leases.All()
				leases = pool()
				leases.Restore(kept)
			}
			for a, x := range holds {
				for b, y := range holds {
					if a != b && x == y && now.Before(until[a]) && now.Before(until[b]) {
						t.Fatalf("%s is of %s and %s", x, a, b)
					}
				}
			}
		}
	})
}

func TestCheckRange(t *testing.T) {
	network := netip.MustParsePrefix("10.0.0.2/24")
	for _, test := range []struct {
		first, last string
		network     netip.Prefix
		ok          bool
	}{
		{"10.0.0.100", "10.0.0.200", network, true},
		{"10.0.0.1", "10.0.0.254", network, true},
		{"10.0.0.0", "10.0.0.9", network, false},
		{"10.0.0.9", "10.0.0.255", network, false},
		{"10.0.0.200", "10.0.0.100", network, false},
		{"10.0.1.1", "10.0.1.9", network, false},
		{"10.0.0.9", "10.0.1.9", network, false},
		{"::1", "::2", network, false},
		{"10.0.0.1", "10.9.0.1", netip.MustParsePrefix("10.0.0.2/8"), false},
	} {
		why := dhcp.CheckRange(netip.MustParseAddr(test.first), netip.MustParseAddr(test.last), test.network)
		if (why == "") != test.ok {
			t.Errorf("%s-%s on %s: %q", test.first, test.last, test.network, why)
		}
	}
}
