package ramdisk

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/node"
)

// tlv is one part of a frame.
func tlv(kind int, value string) string {
	head := kind<<9 | len(value)
	return string([]byte{byte(head >> 8), byte(head)}) + value
}

func frameOf(parts ...string) []byte {
	return []byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xcc" + strings.Join(parts, ""))
}

func TestParseLLDP(t *testing.T) {
	const (
		chassis = "\x04\x00\x1c\x73\x00\x00\x01"
		port    = "\x05Ethernet7"
		ttl     = "\x00\x78"
	)
	first := []string{tlv(1, chassis), tlv(2, port), tlv(3, ttl)}
	end := tlv(0, "")
	full := node.LLDPNeighbor{ChassisID: "00:1c:73:00:00:01", PortID: "Ethernet7", PortDescription: "to rack 7", SystemName: "leaf-1"}
	for _, test := range []struct {
		name  string
		frame []byte
		want  node.LLDPNeighbor
		ok    bool
	}{
		{"a switch", frameOf(append(first, tlv(4, "to rack 7"), tlv(5, "leaf-1\x00"), tlv(127, "\x00\x80\xc2\x01\x00\x01"), end)...), full, true},
		{"no more than is needed", frameOf(append(first, end)...), node.LLDPNeighbor{ChassisID: full.ChassisID, PortID: full.PortID}, true},
		{"named by addresses", frameOf(tlv(1, "\x05\x01\xc0\x00\x02\x01"), tlv(2, "\x03\x02\x00\x00\x00\x00\x09"), tlv(3, ttl), end),
			node.LLDPNeighbor{ChassisID: "192.0.2.1", PortID: "02:00:00:00:00:09"}, true},
		{"what can't be printed", frameOf(tlv(1, "\x07a\x1b[2Jb\n"), tlv(2, port), tlv(3, ttl), end), node.LLDPNeighbor{ChassisID: "a[2Jb", PortID: "Ethernet7"}, true},
		{"padded, as short frames are", append(frameOf(append(first, end)...), make([]byte, 20)...),
			node.LLDPNeighbor{ChassisID: full.ChassisID, PortID: full.PortID}, true},
		{"without an end", frameOf(first...), node.LLDPNeighbor{}, false},
		{"cut", frameOf(append(first, end)...)[:30], node.LLDPNeighbor{}, false},
		{"in another order", frameOf(first[1], first[0], first[2], end), node.LLDPNeighbor{}, false},
		{"without a name of its port", frameOf(tlv(1, chassis), tlv(2, "\x05"), tlv(3, ttl), end), node.LLDPNeighbor{}, false},
		{"another protocol", []byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x08\x00" + tlv(0, "")), node.LLDPNeighbor{}, false},
		{"nothing", nil, node.LLDPNeighbor{}, false},
	} {
		got, lives, ok := parseLLDP(test.frame)
		if diff := cmp.Diff(test.want, got); ok != test.ok || ok && (diff != "" || lives != 2*time.Minute) {
			t.Errorf("%s: %v, %v %s", test.name, ok, lives, diff)
		}
	}
}

func FuzzParseLLDP(f *testing.F) {
	f.Add(frameOf(tlv(1, "\x04\x00\x1c\x73\x00\x00\x01"), tlv(2, "\x05Ethernet7"), tlv(3, "\x00\x78"), tlv(4, "x"), tlv(5, "\xff"), tlv(0, "")))
	f.Add(frameOf(tlv(1, "\x05\x02"+strings.Repeat("\x01", 16)), tlv(2, "\x07"+strings.Repeat("ä", 200)), tlv(3, "\x00\x00"), tlv(0, "")))
	f.Fuzz(func(t *testing.T, frame []byte) {
		got, ttl, ok := parseLLDP(frame)
		if !ok {
			return
		}
		for _, text := range []string{got.ChassisID, got.PortID, got.PortDescription, got.SystemName} {
			if len(text) > lldpTextMost || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\n\r\t\x1b") {
				t.Errorf("%q came of %x", text, frame)
			}
		}
		if got.ChassisID == "" || got.PortID == "" || ttl < 0 || ttl > 0xffff*time.Second {
			t.Errorf("%+v for %v came of %x", got, ttl, frame)
		}
	})
}

// An inventory waits for neighbours that may still speak, and for no others.
func TestNeighborsAreWaitedFor(t *testing.T) {
	speaks := func(ttl string) []byte { return frameOf(tlv(1, "\x07c"), tlv(2, "\x07p"), tlv(3, ttl), tlv(0, "")) }
	for _, test := range []struct {
		name  string
		does  func(*neighbors)
		took  time.Duration
		heard bool
	}{
		{"no link is up", func(n *neighbors) { n.link("eth0", false) }, 0, false},
		{"it has spoken", func(n *neighbors) { n.link("eth0", true); n.frame("eth0", speaks("\x00\x78")) }, 0, true},
		{"it speaks later", func(n *neighbors) {
			n.link("eth0", true)
			time.AfterFunc(20*time.Second, func() { n.frame("eth0", speaks("\x00\x78")) })
		}, 20 * time.Second, true},
		{"it never speaks", func(n *neighbors) { n.link("eth0", true) }, 30 * time.Second, false},
		{"it said goodbye", func(n *neighbors) { n.link("eth0", true); n.frame("eth0", speaks("\x00\x00")) }, 30 * time.Second, false},
		{"another cable", func(n *neighbors) {
			n.link("eth0", true)
			n.frame("eth0", speaks("\x00\x78"))
			n.link("eth0", false)
		}, 0, false},
		{"the link came up meanwhile", func(n *neighbors) {
			n.link("eth0", true)
			time.AfterFunc(10*time.Second, func() { n.link("eth1", true) })
		}, 40 * time.Second, false},
		{"it is silent for longer than it said", func(n *neighbors) {
			n.link("eth0", true)
			n.frame("eth0", speaks("\x00\x01"))
			n.link("eth1", true)
		}, 30 * time.Second, false},
		{"no frame of the protocol", func(n *neighbors) { n.link("eth0", true); n.frame("eth0", []byte("x")) }, 30 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNeighbors(30 * time.Second)
				test.does(n)
				began := time.Now()
				n.await(t.Context())
				nics := []node.NIC{{Name: "eth0"}, {Name: "eth9"}}
				n.add(nics)
				if took := time.Since(began); took != test.took || (nics[0].LLDP != nil) != test.heard || nics[1].LLDP != nil {
					t.Errorf("after %v: %+v", took, nics)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNeighbors(time.Hour)
		n.link("eth0", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		n.await(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited %v", took)
		}
	})
}
