package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/agent"
)

// config is what every role is told.
type config struct {
	gateway   string
	ca        string
	tokenFile string
	stateDir  string
	name      string
	logLevel  string
	logFormat string
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
	flags.StringVar(&c.logLevel, "log-level", "info", "what to log: debug, info, warn or error")
	flags.StringVar(&c.logFormat, "log-format", "text", "how to log, to standard error: text or json")
}

var isFingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString

// check notes everything that is wrong, before anything is started.
func (c *config) check(w *issues) {
	if u, err := url.Parse(c.gateway); err != nil || u.Scheme != "https" || u.Host == "" {
		w.option("gateway", "an https URL is needed, such as https://metal.example:8444")
	}
	c.ca = strings.ToLower(strings.ReplaceAll(c.ca, ":", ""))
	if !isFingerprint(c.ca) {
		w.option("ca-sha256", "64 hexadecimal digits are needed")
	}
	if c.stateDir == "" {
		w.option("state-dir", "needed")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		w.option("log-level", "one of debug, info, warn, error")
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		w.option("log-format", "one of text, json")
	}
}

// token reads the join token, empty where no file is named.
func (c *config) token(w *issues) string {
	if c.tokenFile == "" {
		if _, joined, err := agent.FileState(c.stateDir).Load(); err == nil && !joined {
			w.option("token-file", "needed: the agent has not joined yet")
		}
		return ""
	}
	text, err := os.ReadFile(c.tokenFile)
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		w.option("token-file", "%v", err)
	case token == "":
		w.option("token-file", "%s is empty", c.tokenFile)
	}
	return token
}

func (c *config) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
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

func (c *siteConfig) check(w *issues) {
	c.config.check(w)
	c.boot.check(w)
	for _, name := range c.drivers {
		if drivers[name] == nil {
			w.option("drivers", "there is no driver %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
		}
	}
	if c.room < 1 || c.room > 512 {
		w.option("room", "1 to 512")
	}
	if _, err := c.allowed(); err != nil {
		w.option("proxy-allow", "%v", err)
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
