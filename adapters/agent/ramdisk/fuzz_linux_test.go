package ramdisk

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
)

// Whoever answers DHCP first is believed as far as an address goes, and no further: what comes of it is one, and names that are.
func FuzzLease(f *testing.F) {
	ack, err := dhcpv4.New(dhcpv4.WithYourIP([]byte{192, 0, 2, 1}), dhcpv4.WithMessageType(dhcpv4.MessageTypeAck),
		dhcpv4.WithNetmask([]byte{255, 255, 255, 0}), dhcpv4.WithRouter([]byte{192, 0, 2, 2}), dhcpv4.WithDNS([]byte{192, 0, 2, 3}),
		dhcpv4.WithGeneric(dhcpv4.OptionClasslessStaticRoute, []byte{24, 198, 51, 100, 192, 0, 2, 4}),
		dhcpv4.WithGeneric(dhcpv4.OptionDomainName, []byte("lab.example")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ack.ToBytes())
	f.Add([]byte{7, 0, 0, 1, 0, 3, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 24, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, message []byte) {
		if ack, err := dhcpv4.FromBytes(message); err == nil {
			if got, err := leaseOf(ack); err == nil {
				isLease(t, got)
			}
		}
		if reply, err := dhcpv6.MessageFromBytes(message); err == nil {
			if got, err := lease6Of(reply); err == nil {
				isLease(t, got)
			}
		}
	})
}

func isLease(t *testing.T, got lease) {
	t.Helper()
	if !got.address.IsValid() || got.address.Addr().IsUnspecified() || got.duration < 0 {
		t.Errorf("got %+v", got)
	}
	for _, r := range got.routes {
		if !r.to.IsValid() {
			t.Errorf("a route to %v", r.to)
		}
	}
	for _, name := range got.search {
		if !isDomain(name) || strings.ContainsAny(name, " \n\t#;") {
			t.Errorf("names are looked up in %q", name)
		}
	}
	for _, server := range got.servers {
		if !server.IsValid() || strings.ContainsAny(server.String(), " \n") {
			t.Errorf("names are looked up at %v", server)
		}
	}
}

// What a disk holds is whatever was written to it.
func FuzzFindInstalled(f *testing.F) {
	f.Add([]byte("MZ"), "linux /k\ninitrd /i\noptions root=a", "\nmenuentry 'x' {\n\tlinux /k ro\n\tinitrd /i\n}\n")
	f.Add([]byte{}, "linux /../k", "\nmenuentry {\n linux /k ${x}\n}")
	f.Fuzz(func(t *testing.T, program []byte, entry, grub string) {
		kernel := "the kernel"
		files := fstest.MapFS{
			"EFI/BOOT/BOOTX64.EFI": {Data: program}, "loader/entries/a.conf": {Data: []byte(entry)}, "boot/grub/grub.cfg": {Data: []byte(grub)},
			"k": {Data: []byte(kernel)}, "i": {Data: []byte("the initrd")},
		}
		if got, err := findInstalled(files); err == nil && len(got.kernel) == 0 {
			t.Errorf("an OS without a kernel: %+v", got)
		}
	})
}

// The kernel's command line is what the boot server says, and what whoever sits at the boot loader's menu adds.
func FuzzParseSettings(f *testing.F) {
	f.Add("metal.gateway=https://g:1 metal.ca=" + strings.Repeat("a", 64) + " metal.site=http://s metal.ref=r metal.reboot-after=1m")
	f.Add("metal.gateway= metal.reboot-after=-1s metal.log=x metal.lldp-wait=1")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := ParseSettings(line)
		if got.RebootAfter <= 0 || got.LLDPWait < 0 {
			t.Errorf("%q: it waits for %v and %v", line, got.RebootAfter, got.LLDPWait)
		}
		if err == nil && (got.Ref == "" || len(got.CA) != 64 || !strings.HasPrefix(strings.ToLower(got.Gateway), "https://")) {
			t.Errorf("%q: %+v", line, got)
		}
	})
}
