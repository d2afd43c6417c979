package dhcp_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/netboot/dhcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const machine = "02:00:00:00:00:01"

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func site() dhcp.Site {
	return dhcp.Site{
		Address: netip.MustParseAddr("10.0.0.2"), TFTP: netip.MustParseAddr("10.0.0.3"), URL: "http://10.0.0.2:8081",
		Loaders: map[dhcp.Platform]string{dhcp.BIOS: "undionly.kpxe", dhcp.X8664: "snponly.efi", dhcp.ARM64: "arm64-efi/snponly.efi"},
		Network: netip.MustParsePrefix("10.0.0.2/24"), Lease: time.Hour,
		Routers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, DNS: []netip.Addr{netip.MustParseAddr("10.0.0.53")},
	}
}

// firmware is a request as firmware of an architecture writes it.
func firmware(arch iana.Arch, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	class := "PXEClient"
	if arch >= iana.EFI_X86_HTTP && arch <= iana.INTEL_X86PC_HTTP {
		class = "HTTPClient"
	}
	return request(machine, kind, append([]dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(fmt.Sprintf("%s:Arch:%05d:UNDI:003016", class, arch))),
		dhcpv4.WithOption(dhcpv4.OptClientArch(arch)),
		dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, append([]byte{0}, []byte("0123456789abcdef")...)),
	}, more...)...)
}

func request(mac string, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	address, err := net.ParseMAC(mac)
	if err != nil {
		panic(err)
	}
	p, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(address), dhcpv4.WithMessageType(kind)}, more...)...)
	if err != nil {
		panic(err)
	}
	return p
}

func iPXE(rfc bool) dhcpv4.Modifier { return dhcpv4.WithUserClass("iPXE", rfc) }

// What each kind of firmware is told to boot; "": nothing.
var boots = []struct {
	name   string
	arch   iana.Arch
	more   []dhcpv4.Modifier
	file   string
	server string
	class  string
}{
	{"BIOS", 0, nil, "undionly.kpxe", "10.0.0.3", "PXEClient"},
	{"UEFI x86-64 as 7", 7, nil, "snponly.efi", "10.0.0.3", "PXEClient"},
	{"UEFI x86-64 as 9", 9, nil, "snponly.efi", "10.0.0.3", "PXEClient"},
	{"UEFI arm64", 11, nil, "arm64-efi/snponly.efi", "10.0.0.3", "PXEClient"},
	{"HTTP boot, x86-64", 16, nil, "http://10.0.0.2:8081/ipxe/snponly.efi", "10.0.0.2", "HTTPClient"},
	{"HTTP boot, arm64", 19, nil, "http://10.0.0.2:8081/ipxe/arm64-efi/snponly.efi", "10.0.0.2", "HTTPClient"},
	{"iPXE on BIOS", 0, []dhcpv4.Modifier{iPXE(false)}, "http://10.0.0.2:8081/boot/02:00:00:00:00:01", "10.0.0.2", "PXEClient"},
	{"iPXE on UEFI", 7, []dhcpv4.Modifier{iPXE(false)}, "http://10.0.0.2:8081/boot/02:00:00:00:00:01", "10.0.0.2", "PXEClient"},
	{"iPXE on arm64, class by RFC", 11, []dhcpv4.Modifier{iPXE(true)}, "http://10.0.0.2:8081/boot/02:00:00:00:00:01", "10.0.0.2", "PXEClient"},
	{"no option 93", 7, []dhcpv4.Modifier{dhcpv4.WithoutOption(dhcpv4.OptionClientSystemArchitectureType)}, "snponly.efi", "10.0.0.3", "PXEClient"},
	{"another user class", 7, []dhcpv4.Modifier{dhcpv4.WithUserClass("gPXE", false)}, "snponly.efi", "10.0.0.3", "PXEClient"},
	{"UEFI on 32 bits", 6, nil, "", "", ""},
	{"UEFI arm32", 10, nil, "", "", ""},
	{"PXE that says HTTP", 7, []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("HTTPClient"))}, "", "", ""},
	{"HTTP that says PXE", 16, []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient"))}, "", "", ""},
	{"no firmware", 0, []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("MSFT 5.0"))}, "", "", ""},
	{"nothing known of it", 0, []dhcpv4.Modifier{dhcpv4.WithoutOption(dhcpv4.OptionClientSystemArchitectureType), dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient"))}, "", "", ""},
}

// wire is the packet as the machine reads it.
func wire(t *testing.T, p *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	t.Helper()
	data := p.ToBytes()
	if len(data) < 300 || len(data) > 576 {
		t.Errorf("%d bytes: BOOTP wants 300 at least, and every client takes 576", len(data))
	}
	read, err := dhcpv4.FromBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// conforms checks what holds of every answer.
func conforms(t *testing.T, req, p *dhcpv4.DHCPv4) {
	t.Helper()
	switch {
	case p.OpCode != dhcpv4.OpcodeBootReply, p.TransactionID != req.TransactionID, p.HWType != req.HWType,
		p.ClientHWAddr.String() != req.ClientHWAddr.String(), p.Flags&0x7fff != req.Flags&0x7fff, p.HopCount != 0,
		!p.GatewayIPAddr.Equal(req.GatewayIPAddr), p.ServerIdentifier().String() != "10.0.0.2":
		t.Errorf("%s does not answer\n%s", p.Summary(), req.Summary())
	}
	for _, code := range []dhcpv4.OptionCode{
		dhcpv4.OptionClientMachineIdentifier, dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation,
	} {
		if diff := cmp.Diff(req.Options.Get(code), p.Options.Get(code)); diff != "" {
			t.Errorf("%s is not repeated: %s", code, diff)
		}
	}
}

func fileOf(p *dhcpv4.DHCPv4) string {
	if name := p.BootFileNameOption(); name != "" {
		return name
	}
	return p.BootFileName
}

func TestProxyForEveryFirmware(t *testing.T) {
	for _, test := range boots {
		for _, on := range []struct {
			port        int
			asks, gives dhcpv4.MessageType
		}{
			{dhcp.PortServer, dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeOffer},
			{dhcp.PortProxy, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeAck},
			{dhcp.PortProxy, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeAck},
		} {
			t.Run(fmt.Sprint(test.name, " ", on.port, " ", on.asks), func(t *testing.T) {
				req := firmware(test.arch, on.asks, test.more...)
				answer := site().Proxy(req, on.port, true)
				if (answer.Packet != nil) != (test.file != "") {
					t.Fatalf("%+v", answer)
				}
				if test.file == "" {
					return
				}
				p := wire(t, answer.Packet)
				conforms(t, req, p)
				if p.MessageType() != on.gives || !p.YourIPAddr.IsUnspecified() || p.Options.Has(dhcpv4.OptionIPAddressLeaseTime) {
					t.Errorf("a proxy gives no address: %s", p.Summary())
				}
				checkBoot(t, p, test.file, test.server, test.class)
			})
		}
	}
}

func checkBoot(t *testing.T, p *dhcpv4.DHCPv4, file, server, class string) {
	t.Helper()
	if fileOf(p) != file || p.BootFileName != file || p.ServerIPAddr.String() != server || p.ClassIdentifier() != class {
		t.Errorf("not %s at %s for %s:\n%s", file, server, class, p.Summary())
	}
	vendor := p.Options.Get(dhcpv4.OptionVendorSpecificInformation)
	if class == "PXEClient" && string(vendor) != "\x06\x01\x08\xff" || class == "HTTPClient" && vendor != nil {
		t.Errorf("option 43 is %x", vendor)
	}
	if file == "undionly.kpxe" && p.Options.Has(dhcpv4.OptionBootfileName) {
		t.Error("PXE ROMs are confused by option 67")
	}
}

// A menu item that was chosen is repeated on port 4011.
func TestProxyRepeatsTheBootItem(t *testing.T) {
	for vendor, want := range map[string]string{
		"\x00\x0a\x01x\x47\x04\x80\x01\x00\x00\xff": "\x06\x01\x08\x47\x04\x80\x01\x00\x00\xff",
		"\x47\x02\x80\x01\xff":                      "\x06\x01\x08\xff",
		"\x47\x04\x80":                              "\x06\x01\x08\xff",
		"\xff\x47\x04\x80\x01\x00\x00":              "\x06\x01\x08\xff",
	} {
		req := firmware(0, dhcpv4.MessageTypeRequest, dhcpv4.WithGeneric(dhcpv4.OptionVendorSpecificInformation, []byte(vendor)))
		answer := site().Proxy(req, dhcp.PortProxy, true)
		if got := string(answer.Packet.Options.Get(dhcpv4.OptionVendorSpecificInformation)); got != want {
			t.Errorf("%x: %x", vendor, got)
		}
	}
}

func TestProxyIsSilent(t *testing.T) {
	discover := func(change func(*dhcpv4.DHCPv4)) *dhcpv4.DHCPv4 {
		p := firmware(7, dhcpv4.MessageTypeDiscover)
		change(p)
		return p
	}
	for name, test := range map[string]struct {
		req   *dhcpv4.DHCPv4
		port  int
		known bool
		site  func(*dhcp.Site)
	}{
		"to who has no boot entry":         {firmware(7, dhcpv4.MessageTypeDiscover), 67, false, nil},
		"to who asks the DHCP server":      {firmware(7, dhcpv4.MessageTypeRequest), 67, true, nil},
		"to who tells the DHCP server":     {firmware(7, dhcpv4.MessageTypeRelease), 67, true, nil},
		"to a discovery on the proxy port": {firmware(7, dhcpv4.MessageTypeDiscover), 4011, true, nil},
		"to an answer":                     {discover(func(p *dhcpv4.DHCPv4) { p.OpCode = dhcpv4.OpcodeBootReply }), 67, true, nil},
		"to another kind of network":       {discover(func(p *dhcpv4.DHCPv4) { p.HWType = iana.HWTypeInfiniband }), 67, true, nil},
		"to a group":                       {discover(func(p *dhcpv4.DHCPv4) { p.ClientHWAddr = net.HardwareAddr{1, 0, 0, 0, 0, 1} }), 67, true, nil},
		"to a short address":               {discover(func(p *dhcpv4.DHCPv4) { p.ClientHWAddr = net.HardwareAddr{2} }), 67, true, nil},
		"to BOOTP":                         {discover(func(p *dhcpv4.DHCPv4) { p.Options.Del(dhcpv4.OptionDHCPMessageType) }), 67, true, nil},
		"to PXE without TFTP":              {firmware(7, dhcpv4.MessageTypeDiscover), 67, true, func(s *dhcp.Site) { s.TFTP = netip.Addr{} }},
		"to PXE without the program":       {firmware(11, dhcpv4.MessageTypeDiscover), 67, true, func(s *dhcp.Site) { delete(s.Loaders, dhcp.ARM64) }},
		"to HTTP boot without the program": {firmware(19, dhcpv4.MessageTypeDiscover), 67, true, func(s *dhcp.Site) { delete(s.Loaders, dhcp.ARM64) }},
	} {
		s := site()
		if test.site != nil {
			test.site(&s)
		}
		if answer := s.Proxy(test.req, test.port, test.known); answer.Packet != nil || answer.Why == "" {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}

// Without TFTP and without programs, firmware that is iPXE is served all the same; unknown machines if the site says so.
func TestProxyParts(t *testing.T) {
	s := site()
	s.TFTP, s.Loaders = netip.Addr{}, nil
	if s.Proxy(firmware(0, dhcpv4.MessageTypeDiscover, iPXE(false)), 67, true).Packet == nil {
		t.Error("iPXE is not served")
	}
	s = site()
	s.Unknown = true
	if s.Proxy(firmware(0, dhcpv4.MessageTypeDiscover), 67, false).Packet == nil {
		t.Error("an unknown machine is not served though the site says so")
	}
}

// A URL that the header can't hold is in option 67 only.
func TestALongURL(t *testing.T) {
	s := site()
	s.URL = "http://" + strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example:8081"
	p := wire(t, s.Proxy(firmware(16, dhcpv4.MessageTypeDiscover), 67, true).Packet)
	if want := s.URL + "/ipxe/snponly.efi"; p.BootFileNameOption() != want || p.BootFileName != "" {
		t.Errorf("%q, %q", p.BootFileNameOption(), p.BootFileName)
	}
}

func TestFindLoaders(t *testing.T) {
	got := dhcp.FindLoaders(fstest.MapFS{
		"undionly.kpxe": {}, "ipxe.efi": {}, "snponly.efi/x": {}, "arm64-efi/snponly.efi": {}, "other": {},
	})
	want := map[dhcp.Platform]string{dhcp.BIOS: "undionly.kpxe", dhcp.X8664: "ipxe.efi", dhcp.ARM64: "arm64-efi/snponly.efi"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
