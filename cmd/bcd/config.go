package main

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/cmd/program"
)

// config is what every role is told.
type config struct {
	gateway   string
	ca        string
	tokenFile string
	stateDir  string
	name      string
	log       program.Log
}

func (c *config) bind(flags *pflag.FlagSet) {
	name, _ := os.Hostname() // without one the agent is known by its id only
	flags.StringVar(&c.gateway, "gateway", "", "URL of the control plane's gateway, https://host:port")
	flags.StringVar(&c.ca, "ca-sha256", "",
		"SHA-256 of the control plane's CA certificate, in hexadecimal: it is told with the join token, and by metald when it starts")
	flags.StringVar(&c.tokenFile, "token-file", "", "file with the join token; needed until the agent has joined")
	flags.StringVar(&c.stateDir, "state-dir", "/var/lib/bcd",
		"directory for what the agent keeps: its key and certificate; at a site, boot entries and leases too")
	flags.StringVar(&c.name, "name", name, "what people call this agent")
	c.log.Bind(flags)
}

var isFingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString

// check notes everything that is wrong, before anything is started.
func (c *config) check(w *program.Issues) {
	if u, err := url.Parse(c.gateway); err != nil || u.Scheme != "https" || u.Host == "" {
		w.Option("gateway", "an https URL is needed, such as https://metal.example:8444")
	}
	c.ca = strings.ToLower(strings.ReplaceAll(c.ca, ":", ""))
	if !isFingerprint(c.ca) {
		w.Option("ca-sha256", "64 hexadecimal digits are needed")
	}
	if c.stateDir == "" {
		w.Option("state-dir", "needed")
	}
	c.log.Check(w)
}

// token reads the join token, empty where no file is named.
func (c *config) token(w *program.Issues) string {
	if c.tokenFile == "" {
		if _, joined, err := agent.FileState(c.stateDir).Load(); err == nil && !joined {
			w.Option("token-file", "needed: the agent has not joined yet")
		}
		return ""
	}
	return w.SecretFile("token-file", c.tokenFile)
}

// siteConfig is what a site agent is told besides.
type siteConfig struct {
	config
	boot       bootConfig
	drivers    []string
	proxyAllow []string
	room       int
}

func (c *siteConfig) bind(flags *pflag.FlagSet) {
	c.config.bind(flags)
	c.boot.bind(flags)
	flags.StringSliceVar(&c.drivers, "drivers", slices.Sorted(maps.Keys(drivers)), "the BMC drivers to offer")
	flags.StringSliceVar(&c.proxyAllow, "proxy-allow", nil, "networks that requests to machines may reach although they are local to "+
		"this host, such as 192.0.2.0/24")
	flags.IntVar(&c.room, "room", 64, "how many orders to carry out at once")
}

func (c *siteConfig) check(w *program.Issues) {
	c.config.check(w)
	c.boot.check(w)
	for _, name := range c.drivers {
		if drivers[name] == nil {
			w.Option("drivers", "there is no driver %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
		}
	}
	if c.room < 1 || c.room > 512 {
		w.Option("room", "1 to 512")
	}
	if _, err := c.allowed(); err != nil {
		w.Option("proxy-allow", "%v", err)
	}
}

func (c *siteConfig) allowed() (out []netip.Prefix, err error) {
	for _, text := range c.proxyAllow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 192.0.2.0/24", text)
		}
		out = append(out, p)
	}
	return out, nil
}
