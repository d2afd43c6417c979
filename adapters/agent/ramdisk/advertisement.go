package ramdisk

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"
)

// advertisement is what a router tells its network beside the prefixes, which are the kernel's.
type advertisement struct {
	managed, other bool // addresses, or everything else, are to be had by DHCPv6
	servers        []netip.Addr
	search         []string
	lifetime       time.Duration // of servers and search; the shorter counts
}

// What a router advertisement is made of (RFC 4861, RFC 8106).
const (
	advertisementType   = 134
	advertisementHeader = 16
	flagManaged         = 0x80
	flagOther           = 0x40
	optionServers       = 25
	optionSearch        = 31
	optionUnit          = 8 // bytes that lengths count in
)

// parseAdvertisement reads a message of ICMPv6. Anybody on the wire may have written it.
func parseAdvertisement(message []byte) (out advertisement, ok bool) {
	if len(message) < advertisementHeader || message[0] != advertisementType || message[1] != 0 {
		return out, false
	}
	out.managed, out.other = message[5]&flagManaged != 0, message[5]&flagOther != 0
	for rest := message[advertisementHeader:]; len(rest) > 0; {
		if len(rest) < 2 || rest[1] == 0 || len(rest) < int(rest[1])*optionUnit {
			return advertisement{}, false
		}
		option := rest[:int(rest[1])*optionUnit]
		rest = rest[len(option):]
		var told bool
		switch option[0] {
		case optionServers:
			told = out.addServers(option[8:])
		case optionSearch:
			told = out.addSearch(option[8:])
		}
		if !told {
			continue
		}
		if lifetime := time.Duration(binary.BigEndian.Uint32(option[4:])) * time.Second; out.lifetime == 0 || lifetime < out.lifetime {
			out.lifetime = lifetime
		}
	}
	return out, true
}

func (a *advertisement) addServers(list []byte) (told bool) {
	for ; len(list) >= 16; list = list[16:] {
		server := netip.AddrFrom16([16]byte(list[:16]))
		if !server.IsUnspecified() && !server.IsMulticast() {
			a.servers, told = append(a.servers, server), true
		}
	}
	return told
}

// addSearch reads names of domains: labels with their lengths before them, and a zero at the end of each name.
func (a *advertisement) addSearch(list []byte) (told bool) {
	var labels []string
	for len(list) > 0 {
		length := int(list[0])
		if length == 0 {
			if len(labels) > 0 {
				a.search, told = append(a.search, strings.Join(labels, ".")), true
			}
			labels, list = nil, list[1:]
			continue
		}
		if length > 63 || len(list) < 1+length || !isLabel(list[1:1+length]) {
			return told
		}
		labels, list = append(labels, string(list[1:1+length])), list[1+length:]
	}
	return told
}

// isLabel tells what may stand in the resolver's file: a name from the wire must not bring a line of its own.
func isLabel(label []byte) bool {
	for _, c := range label {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func isDomain(name string) bool {
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || !isLabel([]byte(label)) {
			return false
		}
	}
	return true
}
