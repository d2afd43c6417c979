package claim_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

func TestParseAddress(t *testing.T) {
	tests := map[string][2]string{ // URL, key; empty: refused
		"10.0.0.10":                          {"https://10.0.0.10", "10.0.0.10"},
		" 10.0.0.10 ":                        {"https://10.0.0.10", "10.0.0.10"},
		"10.0.0.10:443":                      {"https://10.0.0.10", "10.0.0.10"},
		"10.0.0.10:8443":                     {"https://10.0.0.10:8443", "10.0.0.10:8443"},
		"http://10.0.0.10":                   {"http://10.0.0.10", "10.0.0.10"},
		"http://10.0.0.10:80/":               {"http://10.0.0.10", "10.0.0.10"},
		"http://10.0.0.10:443":               {"http://10.0.0.10:443", "10.0.0.10"},
		"BMC-7.Example.":                     {"https://bmc-7.example", "bmc-7.example"},
		"HTTPS://BMC-7.EXAMPLE:443/":         {"https://bmc-7.example", "bmc-7.example"},
		"https://bmc/redfish/v1/":            {"https://bmc", "bmc"},
		"https://bmc/redfish/v1/Systems/1":   {"https://bmc/redfish/v1/Systems/1", "bmc"},
		"bmc/redfish/v1/Systems/437XR1138R2": {"https://bmc/redfish/v1/Systems/437XR1138R2", "bmc"},
		"my_bmc":                             {"https://my_bmc", "my_bmc"},
		"2001:db8::1":                        {"https://[2001:db8::1]", "2001:db8::1"},
		"2001:DB8:0:0::1":                    {"https://[2001:db8::1]", "2001:db8::1"},
		"[2001:db8::1]":                      {"https://[2001:db8::1]", "2001:db8::1"},
		"[2001:db8::1]:443":                  {"https://[2001:db8::1]", "2001:db8::1"},
		"[2001:db8::1]:8443":                 {"https://[2001:db8::1]:8443", "[2001:db8::1]:8443"},
		"https://[2001:db8::1]/redfish/v1":   {"https://[2001:db8::1]", "2001:db8::1"},
		"fe80::1%eth0":                       {"https://[fe80::1%25eth0]", "fe80::1%eth0"},
		"[fe80::1%25eth0]:443":               {"https://[fe80::1%25eth0]", "fe80::1%eth0"},
		"::ffff:10.0.0.10":                   {"https://10.0.0.10", "10.0.0.10"},

		"": {}, "   ": {}, "ftp://bmc": {}, "://bmc": {}, "https://": {}, "https://:443": {}, "bmc:0": {}, "bmc:65536": {}, "bmc:": {},
		"bmc:+80": {}, "bmc:80x": {}, "bmc name": {}, "-bmc": {}, "bmc-.example": {}, "a..b": {}, "10.0.0.256": {}, "10.0.0": {},
		"1234": {}, "0x7f.1": {}, "010.0.0.1": {}, "[2001:db8::1": {}, "[10.0.0.1]": {}, "[bmc]:443": {}, "[::1]x": {}, "::": {}, "0.0.0.0": {}, "ff02::1": {},
		"https://root:calvin@bmc": {}, "root@bmc": {}, "bmc?x=1": {}, "bmc#x": {}, "https://bmc/a b": {}, "https://bmc/%zz": {}, "bmc/../x": {}, "bmc/a/%2e%2e/b": {}, "255.255.255.255": {}, "169.254.169.254": {},
		"bmc\x00": {}, "bücher": {}, strings.Repeat("a", 600): {},
	}
	for in, want := range tests {
		got, err := claim.ParseAddress(in)
		if (err != nil) != (want[0] == "") {
			t.Errorf("%q: got %+v, %v", in, got, err)
			continue
		}
		if err == nil && (got.URL != want[0] || got.Key != want[1]) {
			t.Errorf("%q: got %q key %q, want %q key %q", in, got.URL, got.Key, want[0], want[1])
		}
		if err != nil && strings.Contains(err.Error(), "calvin") {
			t.Errorf("%q: the error repeats the password: %v", in, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"10.0.0.10", "[fe80::1%25eth0]:443", "https://bmc/redfish/v1/Systems/1", "::ffff:1.2.3.4", "HTTP://A:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := claim.ParseAddress(s)
		if err != nil {
			return
		}
		again, err := claim.ParseAddress(first.URL)
		if err != nil || again != first {
			t.Fatalf("%q is %+v, which is %+v, %v", s, first, again, err)
		}
	})
}

func TestMAC(t *testing.T) {
	for _, in := range []string{"b8:ce:f6:00:00:01", "B8:CE:F6:00:00:01", "b8-ce-f6-00-00-01", "b8ce.f600.0001", "B8CEF6000001", " b8:ce:f6:00:00:01 "} {
		if got, err := claim.MAC(in); err != nil || got != "b8:ce:f6:00:00:01" {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "b8:ce:f6:00:00", "b8:ce:f6:00:00:01:02", "b8:ce-f6:00:00:01", "b8cef600000", "b8cef60000011", "g8:ce:f6:00:00:01",
		"b8:ce:f6:00:0:001", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "b8ce:f600:0001", "ｂ8cef6000001",
	} {
		if got, err := claim.MAC(in); err == nil {
			t.Errorf("%q: got %q, want an error", in, got)
		}
	}
}

// Whoever takes and releases at random: a value has one holder, and only its holder gives it up.
func TestOneHolder(t *testing.T) {
	nodes := []id.Node{of(1), of(2), of(3)}
	key := claim.Key{Kind: claim.MACAddress, Value: "b8:ce:f6:00:00:01"}
	rapid.Check(t, func(t *rapid.T) {
		var s claim.State
		var holder id.Node
		for range rapid.IntRange(1, 30).Draw(t, "verbs") {
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			take := rapid.Bool().Draw(t, "take")
			var c claim.Command = claim.Release{Key: key, Holder: n}
			if take {
				c = claim.Take{Key: key, Holder: n}
			}
			events, err := claim.Decide(s, c)
			s = claim.Decider.Fold(s, events...)
			switch {
			case take && id.IsZero(holder):
				holder = n
			case take && holder != n && fault.CodeOf(err) != fault.Conflict:
				t.Fatalf("%s took what %s holds: %v", n, holder, err)
			case !take && holder == n:
				holder = id.Node{}
			}
			if s.Holder != holder {
				t.Fatalf("held by %s, want %s", s.Holder, holder)
			}
		}
	})
}

func of(n byte) id.Node { return id.Of[id.Node](uuid.UUID{15: n}) }

func TestKeysOfOneValueShareAStream(t *testing.T) {
	a := claim.Key{Kind: claim.BMCAddress, Scope: "site_1", Value: "10.0.0.1"}
	b, other := a, a
	other.Scope = "site_2"
	if a.Stream() != b.Stream() || a.Stream() == other.Stream() || a.Stream().Category() != claim.Category {
		t.Fatalf("%s %s %s", a.Stream(), b.Stream(), other.Stream())
	}
}
