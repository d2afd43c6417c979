package ramdisk

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	routerHead = "\x86\x00\x00\x00\x40"
	routerRest = "\x07\x08\x00\x00\x00\x00\x00\x00\x00\x00"
	server1    = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x35"
	ownAddress = "\x01\x01\x02\x00\x00\x00\x00\x01" // of the router's port
)

func servers(lifetime string, list ...string) string {
	return "\x19" + string(byte(1+2*len(list))) + "\x00\x00" + lifetime + strings.Join(list, "")
}

func domains(lifetime, list string) string {
	for len(list)%8 != 0 {
		list += "\x00"
	}
	return "\x1f" + string(byte(1+len(list)/8)) + "\x00\x00" + lifetime + list
}

func TestParseAdvertisement(t *testing.T) {
	hour, minute := "\x00\x00\x0e\x10", "\x00\x00\x00\x3c"
	at := []netip.Addr{netip.MustParseAddr("2001:db8::35")}
	for _, test := range []struct {
		name, message string
		want          advertisement
		ok            bool
	}{
		{"prefixes alone", routerHead + "\x00" + routerRest + ownAddress, advertisement{}, true},
		{"managed", routerHead + "\x80" + routerRest, advertisement{managed: true}, true},
		{"other", routerHead + "\x40" + routerRest, advertisement{other: true}, true},
		{"servers and domains", routerHead + "\x00" + routerRest + ownAddress + servers(hour, server1) +
			domains(minute, "\x03lab\x07example\x00\x01x\x00"),
			advertisement{servers: at, search: []string{"lab.example", "x"}, lifetime: time.Minute}, true},
		{"a domain that would be a line", routerHead + "\x00" + routerRest + domains(hour, "\x03a\nb\x00"), advertisement{}, true},
		{"nobody's address", routerHead + "\x00" + routerRest + servers(hour, strings.Repeat("\x00", 16)), advertisement{}, true},
		{"an option without a length", routerHead + "\x00" + routerRest + "\x19\x00", advertisement{}, false},
		{"an option that is cut", routerHead + "\x00" + routerRest + servers(hour, server1)[:20], advertisement{}, false},
		{"another message", "\x87" + routerHead[1:] + "\x00" + routerRest, advertisement{}, false},
		{"cut", routerHead, advertisement{}, false},
	} {
		got, ok := parseAdvertisement([]byte(test.message))
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(advertisement{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" ||
			ok != test.ok {
			t.Errorf("%s: %v %s", test.name, ok, diff)
		}
	}
}

// What routers say goes into the resolver's file: it must not bring lines of its own.
func FuzzParseAdvertisement(f *testing.F) {
	f.Add([]byte(routerHead + "\xc0" + routerRest + ownAddress + servers("\x00\x00\x0e\x10", server1) + domains("\x00\x00\x00\x3c", "\x03lab\x00")))
	f.Fuzz(func(t *testing.T, message []byte) {
		got, _ := parseAdvertisement(message)
		for _, name := range got.search {
			if !isDomain(name) || strings.ContainsAny(name, " \n\t#;") {
				t.Errorf("%q came of %x", name, message)
			}
		}
		for _, server := range got.servers {
			if !server.Is6() || server.IsUnspecified() || server.IsMulticast() {
				t.Errorf("%v came of %x", server, message)
			}
		}
	})
}

func TestIsDomain(t *testing.T) {
	for name, want := range map[string]bool{
		"lab.example": true, "lab.example.": true, "x": true, "": false, ".": false, "a..b": false, "a b": false, "a\nnameserver 192.0.2.66": false,
		strings.Repeat("a", 64): false,
	} {
		if isDomain(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
