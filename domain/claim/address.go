package claim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Address is a BMC's address in its normal form.
type Address struct {
	URL string // https://host[:port][/path], what a driver dials
	Key string // what makes it unique: the host, and the port where it is not a default one
}

const maxAddress = 512

var errTooLong = fmt.Errorf("an address holds at most %d characters", maxAddress)

// ParseAddress reads a BMC address in any form that people write: host, host:port, an IPv6 address bare, in brackets or
// with a zone, a URL with or without a path, in either case. A default port (443, or 80 for http) and the path are not
// part of Key: https://bmc-7:443/redfish/v1/ and BMC-7 are one BMC. Credentials in the address are refused and never
// repeated in the error.
func ParseAddress(s string) (Address, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Address{}, errors.New("an address is needed, such as 10.0.0.10 or https://bmc-7.example:8443")
	}
	if len(s) > maxAddress {
		return Address{}, errTooLong
	}
	scheme, rest := splitScheme(s)
	if scheme != "https" && scheme != "http" {
		return Address{}, errors.New("the scheme is https or http")
	}
	if strings.ContainsAny(rest, "?#") {
		return Address{}, errors.New("an address has no query and no fragment")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		return Address{}, errors.New("credentials do not belong in the address; use the credentials field")
	}
	host, port, err := splitHostPort(authority)
	if err != nil {
		return Address{}, err
	}
	return assemble(scheme, host, port, path)
}

func splitScheme(s string) (scheme, rest string) {
	if before, after, found := strings.Cut(s, "://"); found {
		return strings.ToLower(before), after
	}
	return "https", s
}

// splitHostPort separates the port; zero where there is none.
func splitHostPort(authority string) (host string, port int, err error) {
	host = authority
	switch {
	case strings.HasPrefix(authority, "["):
		end := strings.Index(authority, "]")
		if end < 0 {
			return "", 0, errors.New("the bracket of an IPv6 address is not closed")
		}
		host = authority[1:end]
		if _, err := netip.ParseAddr(unescapeZone(host)); err != nil || !strings.Contains(host, ":") {
			return "", 0, errors.New("brackets hold an IPv6 address")
		}
		port, err = parsePort(authority[end+1:])
	case strings.Count(authority, ":") == 1:
		var text string
		host, text, _ = strings.Cut(authority, ":")
		port, err = parsePort(":" + text)
	}
	if err != nil {
		return "", 0, err
	}
	host, err = normalHost(host)
	return host, port, err
}

func parsePort(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, ":"), 10, 16)
	if err != nil || n == 0 || s[0] != ':' || s[1] == '+' {
		return 0, errors.New("the port is a number from 1 to 65535")
	}
	return int(n), nil
}

func unescapeZone(host string) string { return strings.Replace(host, "%25", "%", 1) }

// normalHost gives IP addresses their canonical text (RFC 5952) and names their lower case without a trailing dot.
func normalHost(host string) (string, error) {
	if addr, err := netip.ParseAddr(unescapeZone(host)); err == nil {
		return normalIP(addr)
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if !validName(name) {
		return "", errors.New("the host is an IP address or a DNS name")
	}
	return name, nil
}

var (
	broadcast = netip.MustParseAddr("255.255.255.255")
	metadata  = netip.MustParseAddr("169.254.169.254") // where clouds serve their machines' credentials
)

func normalIP(addr netip.Addr) (string, error) {
	addr = addr.Unmap()
	if addr.IsUnspecified() || addr.IsMulticast() || addr == broadcast || addr == metadata {
		return "", errors.New("an unspecified, multicast, broadcast or metadata service's address is no BMC's")
	}
	if !validZone(addr.Zone()) {
		return "", errors.New("the zone of an IPv6 address is an interface's name, such as eth0")
	}
	return addr.String(), nil
}

// validZone accepts the unreserved characters of RFC 6874, up to the longest name of an interface.
func validZone(zone string) bool {
	const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return len(zone) <= 15 && strings.Trim(zone, unreserved) == ""
}

// validName accepts the names of RFC 1123 and, as BMCs are named in practice, underscores. A name whose last label is a
// number is a mistyped IPv4 address (WHATWG URL, "ends in a number").
func validName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

func assemble(scheme, host string, port int, path string) (Address, error) {
	if strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return Address{}, errors.New("the path holds a space or a control character")
	}
	u := url.URL{Scheme: scheme, Host: host}
	standard := port == 0 || (scheme == "https" && port == 443) || (scheme == "http" && port == 80)
	if strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	if !standard {
		u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	}
	key := host
	if !standard && port != 80 && port != 443 {
		key = u.Host
	}
	path = strings.Trim(path, "/")
	if path != "" && path != "redfish" && path != "redfish/v1" {
		unescaped, err := url.PathUnescape(path)
		if err != nil || strings.Contains("/"+unescaped+"/", "/../") {
			return Address{}, errors.New("the path has a broken percent escape or climbs out of itself")
		}
		u.Path = "/" + unescaped
	}
	if len(u.String()) > maxAddress {
		return Address{}, errTooLong
	}
	return Address{URL: u.String(), Key: key}, nil
}
