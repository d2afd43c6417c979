package main

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/netboot/cache"
	"github.com/better-compute/metal/adapters/netboot/dhcp"
	"github.com/better-compute/metal/adapters/netboot/tftp"
	"github.com/better-compute/metal/cmd/program"
)

// What --dhcp may be.
const (
	dhcpOff    = "off"
	dhcpProxy  = "proxy"
	dhcpServer = "server"
)

// bootConfig is what a site agent is told of network boot. Each part is off unless it is asked for.
type bootConfig struct {
	listen, url, files string
	gateway, media     string
	loaders            string
	tftp               string
	transfers          int
	rate               size

	dhcp, link     string
	pool           string
	routers, dns   []string
	lease          time.Duration
	alone          bool
	unknown, quiet bool

	cacheDir  string
	cacheSize size
	cacheFrom []string
}

func (c *bootConfig) bind(flags *pflag.FlagSet) {
	flags.StringVar(&c.listen, "boot-listen", "", "address and port on which machines fetch what they boot, such as 10.0.0.2:8081; "+
		"empty: this agent serves no network boot")
	flags.StringVar(&c.url, "boot-url", "", "how machines reach that address, such as http://10.0.0.2:8081")
	flags.StringVar(&c.gateway, "boot-gateway", "", "how machines reach the gateway, https://host:port, where that is not --gateway")
	flags.StringVar(&c.media, "boot-media-url", "", "how BMCs reach --boot-listen for what their virtual drives hold, where that is not "+
		"--boot-url")
	flags.BoolVar(&c.alone, "boot-alone", false, "this agent is the only one of its site that serves network boot, ever: it answers "+
		"machines also without the boot lease, such as while the control plane is out of reach")
	flags.StringVar(&c.files, "boot-files", "", "directory with kernels and ramdisks that boot entries name; and with ramdisk.iso, for "+
		"machines that boot from a virtual drive")
	flags.IntVar(&c.transfers, "boot-transfers", 64, "how many files go out at once by HTTP, and as many by TFTP; others wait for "+
		"their turn")
	flags.Var(&c.rate, "boot-rate", "how many bytes go out in a second, by HTTP and TFTP together, such as 100M; 0: no limit")
	flags.StringVar(&c.loaders, "ipxe-dir", "", "directory with iPXE programs for firmware that has none, such as /usr/lib/ipxe: "+
		"undionly.kpxe, snponly.efi, snponly-arm64.efi")
	flags.StringVar(&c.tftp, "tftp", "", "address and port on which PXE firmware fetches iPXE from --ipxe-dir, such as 10.0.0.2:69; "+
		"empty: off")
	flags.StringVar(&c.dhcp, "dhcp", dhcpOff, "tell machines what they boot: proxy, beside a DHCP server that gives out addresses; "+
		"server, as the DHCP server of the network; off")
	flags.StringVar(&c.link, "dhcp-interface", "", "the interface on the machines' network, such as eth1; needed with --dhcp")
	flags.StringVar(&c.pool, "dhcp-range", "", "the addresses that --dhcp server gives out, such as 10.0.0.100-10.0.0.200")
	flags.StringSliceVar(&c.routers, "dhcp-router", nil, "the routers that --dhcp server tells machines")
	flags.StringSliceVar(&c.dns, "dhcp-dns", nil, "the name servers that --dhcp server tells machines")
	flags.DurationVar(&c.lease, "dhcp-lease", time.Hour, "how long machines have their addresses of --dhcp server")
	flags.BoolVar(&c.unknown, "dhcp-unknown", false, "answer machines without a boot entry too; they get a script that goes on to "+
		"their next boot device, and with --dhcp server an address")
	flags.BoolVar(&c.quiet, "dhcp-no-ipv6", false, "answer IPv6 router solicitations on --dhcp-interface with 'no router here', "+
		"so that iPXE does not wait for one on a network without IPv6")
	flags.StringVar(&c.cacheDir, "cache-dir", "", "directory of the image cache, which the agent alone uses; empty: off")
	c.cacheSize = 50 << 30
	flags.Var(&c.cacheSize, "cache-bytes", "how much the cache keeps; what was not used for longest makes room")
	flags.StringSliceVar(&c.cacheFrom, "cache-from", nil, "URLs that images may come from, such as https://images.example/; "+
		"needed with --cache-dir")
}

func (c *bootConfig) check(w *program.Issues) {
	if c.listen == "" {
		c.checkAlone(w)
	} else {
		c.checkHTTP(w)
	}
	c.checkTFTP(w)
	c.checkDHCP(w)
	c.checkCache(w)
	if c.transfers < 1 || c.transfers > 4096 {
		w.Option("boot-transfers", "1 to 4096")
	}
}

// checkAlone notes what makes no sense without --boot-listen.
func (c *bootConfig) checkAlone(w *program.Issues) {
	var others []string
	for name, given := range map[string]bool{
		"--boot-url": c.url != "", "--boot-alone": c.alone, "--boot-gateway": c.gateway != "", "--boot-media-url": c.media != "",
		"--boot-files": c.files != "", "--ipxe-dir": c.loaders != "", "--tftp": c.tftp != "",
		"--dhcp": c.dhcp != dhcpOff, "--cache-dir": c.cacheDir != "",
	} {
		if given {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		w.Option("boot-listen", "needed with %s", listed(others))
	}
}

func (c *bootConfig) checkHTTP(w *program.Issues) {
	if _, port, err := net.SplitHostPort(c.listen); err != nil || port == "" {
		w.Option("boot-listen", "host:port, such as 10.0.0.2:8081")
	}
	if !isHTTP(c.media) && c.media != "" {
		w.Option("boot-media-url", "an http URL, such as http://10.1.0.2:8081")
	}
	if !isHTTP(c.url) {
		w.Option("boot-url", "needed with --boot-listen: an http URL, such as http://10.0.0.2:8081")
	}
	if u, err := url.Parse(c.gateway); c.gateway != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		w.Option("boot-gateway", "an https URL, such as https://metal.example:8444")
	}
	directory(w, "boot-files", c.files)
	directory(w, "ipxe-dir", c.loaders)
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func directory(w *program.Issues, name, path string) {
	if path == "" {
		return
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		w.Option(name, "%s is not a directory", path)
	}
}

func (c *bootConfig) checkTFTP(w *program.Issues) {
	if c.tftp == "" {
		return
	}
	at, err := netip.ParseAddrPort(c.tftp)
	switch {
	case err != nil || !at.Addr().Is4():
		w.Option("tftp", "an IPv4 address and a port, such as 10.0.0.2:69")
	case c.dhcp != dhcpOff && at.Port() != tftp.Port:
		w.Option("tftp", "firmware asks on port %d only", tftp.Port)
	}
	if c.loaders == "" {
		w.Option("ipxe-dir", "needed with --tftp")
	}
}

func (c *bootConfig) checkDHCP(w *program.Issues) {
	switch c.dhcp {
	case dhcpOff:
		c.checkUnused(w, "link", "pool")
		return
	case dhcpProxy:
		c.checkUnused(w, "pool")
	case dhcpServer:
		c.checkPool(w)
	default:
		w.Option("dhcp", "one of proxy, server, off")
		return
	}
	if c.link == "" {
		w.Option("dhcp-interface", "needed with --dhcp %s", c.dhcp)
	}
}

// checkUnused notes options that would have no effect: who gave them expects one.
func (c *bootConfig) checkUnused(w *program.Issues, kinds ...string) {
	for _, kind := range kinds {
		switch {
		case kind == "link" && (c.link != "" || c.unknown || c.quiet):
			w.Option("dhcp", "proxy or server is needed with --dhcp-interface, --dhcp-unknown and --dhcp-no-ipv6")
		case kind == "pool" && (c.pool != "" || len(c.routers)+len(c.dns) > 0):
			w.Option("dhcp", "server is needed with --dhcp-range, --dhcp-router and --dhcp-dns")
		}
	}
}

func (c *bootConfig) checkPool(w *program.Issues) {
	if _, _, ok := c.bounds(); !ok {
		w.Option("dhcp-range", "needed with --dhcp server: first and last address, such as 10.0.0.100-10.0.0.200")
	}
	for name, texts := range map[string][]string{"dhcp-router": c.routers, "dhcp-dns": c.dns} {
		if _, ok := addresses(texts); !ok {
			w.Option(name, "IPv4 addresses are needed")
		}
	}
	if c.lease < 2*time.Minute || c.lease > 30*24*time.Hour {
		w.Option("dhcp-lease", "2m to 720h")
	}
}

// bounds are the first and the last address of --dhcp-range.
func (c *bootConfig) bounds() (first, last netip.Addr, ok bool) {
	from, to, found := strings.Cut(c.pool, "-")
	both, ok := addresses([]string{strings.TrimSpace(from), strings.TrimSpace(to)})
	if !found || !ok || both[0].Compare(both[1]) > 0 {
		return netip.Addr{}, netip.Addr{}, false
	}
	return both[0], both[1], true
}

func addresses(texts []string) ([]netip.Addr, bool) {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is4() {
			return nil, false
		}
		out = append(out, a)
	}
	return out, true
}

func (c *bootConfig) checkCache(w *program.Issues) {
	switch {
	case c.cacheDir == "" && len(c.cacheFrom) > 0:
		w.Option("cache-dir", "needed with --cache-from")
	case c.cacheDir != "" && len(c.cacheFrom) == 0:
		w.Option("cache-from", "needed with --cache-dir: or any machine could have this agent fetch anything")
	}
	for _, from := range c.cacheFrom {
		if err := cache.CheckSource(from); err != nil {
			w.Option("cache-from", "%v", err)
		}
	}
	if c.cacheSize < 1<<20 {
		w.Option("cache-bytes", "1M at least")
	}
}

// site is what the machines are told, on the network of --dhcp-interface.
func (c *bootConfig) site() (dhcp.Site, error) {
	first, last, _ := c.bounds()
	network, err := dhcp.NetworkOf(c.link, first)
	if err != nil {
		return dhcp.Site{}, err
	}
	site := dhcp.Site{Address: network.Addr(), URL: c.url, Unknown: c.unknown, Network: network, Lease: c.lease}
	site.Routers, _ = addresses(c.routers)
	site.DNS, _ = addresses(c.dns)
	if at, err := netip.ParseAddrPort(c.tftp); err == nil {
		site.TFTP = at.Addr()
		if site.TFTP.IsUnspecified() {
			site.TFTP = network.Addr()
		}
	}
	if c.dhcp == dhcpServer {
		if why := dhcp.CheckRange(first, last, network); why != "" {
			w := &program.Issues{}
			w.Option("dhcp-range", "%s", why)
			return dhcp.Site{}, w.Err()
		}
	}
	return site, nil
}

// size is a number of bytes, with K, M, G or T for powers of 1024.
type size int64

// String is how the flag shows it.
func (s *size) String() string {
	for i, unit := range []string{"T", "G", "M", "K"} {
		if one := int64(1) << (40 - 10*i); int64(*s) >= one && int64(*s)%one == 0 {
			return strconv.FormatInt(int64(*s)/one, 10) + unit
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Set reads it.
func (s *size) Set(text string) error {
	digits, shift := text, 0
	if i := strings.IndexAny(text, "KMGT"); i >= 0 && i == len(text)-1 {
		digits, shift = text[:i], 10*(strings.IndexByte("KMGT", text[i])+1)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return errSize
	}
	*s = size(n << shift)
	return nil
}

// Type is what help calls it.
func (s *size) Type() string { return "bytes" }
