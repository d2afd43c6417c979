package main

import (
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/cmd/metald/plane"
	"github.com/better-compute/metal/cmd/program"
)

// config is everything that a running control plane is told.
type config struct {
	listen         string
	tlsCert        string
	tlsKey         string
	insecureHTTP   bool
	postgres       string
	eventstore     string
	masterKeyFile  string
	adminTokenFile string
	policies       string
	gatewayListen  string
	gatewayURL     string
	gatewayNames   []string
	kernel         string
	initrd         string
	kernelArgs     []string
	log            program.Log
	drain          time.Duration
}

func (c *config) bindStores(flags *pflag.FlagSet) {
	flags.StringVar(&c.postgres, "postgres", "", "the PostgreSQL database, 15 or newer, as a URL or key=value words")
	flags.StringVar(&c.eventstore, "eventstore", "",
		"keep the event log in this EventStoreDB (KurrentDB) cluster, esdb://…, instead of PostgreSQL")
	c.bindMasterKey(flags)
}

func (c *config) bindMasterKey(flags *pflag.FlagSet) {
	flags.StringVar(&c.masterKeyFile, "master-key-file", "",
		"file with the key that wraps the secret store, 32 bytes in hexadecimal or base64, readable by its owner only; "+
			"or METAL_MASTER_KEY holds the key, or systemd's credential metal-master-key")
}

func (c *config) bindServer(flags *pflag.FlagSet, listen, gateway string) {
	flags.StringVar(&c.listen, "listen", listen, "address and port of the HTTP API")
	flags.StringVar(&c.gatewayListen, "gateway-listen", gateway,
		"address and port at which agents reach the control plane, over TLS of its own")
	flags.StringVar(&c.gatewayURL, "gateway-url", "",
		"URL of the gateway as agents are told it, https://…; left out: the address it listens on")
	flags.StringSliceVar(&c.gatewayNames, "gateway-name", nil,
		"further DNS name or IP address of the gateway's certificate; repeat for more")
	flags.StringVar(&c.kernel, "ramdisk-kernel", "vmlinuz",
		"kernel that machines boot from the network: a URL, or a name below the --boot-files of their site's agent")
	flags.StringVar(&c.initrd, "ramdisk-initrd", "initramfs", "its initial ramdisk; bcd image build-ramdisk makes both")
	flags.StringArrayVar(&c.kernelArgs, "ramdisk-arg", nil,
		"further kernel arguments, such as 'console=ttyS0,115200 quiet'; may be repeated")
	flags.DurationVar(&c.drain, "drain", 10*time.Second, "how long requests may take to finish when it is stopped")
}

func (c *config) bindServe(flags *pflag.FlagSet) {
	c.bindServer(flags, ":8443", ":8444")
	flags.StringVar(&c.tlsCert, "tls-cert", "", "file with the certificate chain of the HTTP API, PEM")
	flags.StringVar(&c.tlsKey, "tls-key", "", "file with its private key, PEM")
	flags.BoolVar(&c.insecureHTTP, "insecure-http", false, "serve HTTP without TLS, behind a proxy that terminates it")
	flags.StringVar(&c.adminTokenFile, "admin-token-file", "",
		"file with the token of the first administrator; without it, one is made and printed at the first start")
	flags.StringVar(&c.policies, "policies", "", "directory of further Cedar policies (*.cedar) that may only forbid")
}

// check notes everything that is wrong with the options, before anything is started.
func (c *config) check(w *program.Issues, serving bool) {
	c.log.Check(w)
	if c.postgres == "" {
		w.Option("postgres", "needed, such as postgres:///metal?host=/run/postgresql")
	}
	if c.eventstore != "" && !strings.HasPrefix(c.eventstore, "esdb") && !strings.HasPrefix(c.eventstore, "kurrentdb") {
		w.Option("eventstore", "an address that begins with esdb:// or esdb+discover://")
	}
	if serving {
		c.checkServer(w)
	}
}

func (c *config) checkServer(w *program.Issues) {
	if _, port, err := net.SplitHostPort(c.listen); err != nil || port == "" {
		w.Option("listen", "host:port, such as :8443 or 127.0.0.1:8080")
	}
	if _, port, err := net.SplitHostPort(c.gatewayListen); err != nil || port == "" {
		w.Option("gateway-listen", "host:port, such as :8444")
	}
	if u, err := url.Parse(c.gatewayURL); c.gatewayURL != "" && (err != nil || u.Scheme != "https" || u.Hostname() == "") {
		w.Option("gateway-url", "https://host:port")
	}
	switch {
	case c.insecureHTTP && (c.tlsCert != "" || c.tlsKey != ""):
		w.Option("insecure-http", "not together with --tls-cert and --tls-key")
	case !c.insecureHTTP && c.tlsCert == "":
		w.Option("tls-cert", "needed: bearer tokens don't travel in the clear; --insecure-http says that a proxy terminates TLS")
	case !c.insecureHTTP && c.tlsKey == "":
		w.Option("tls-key", "needed with --tls-cert")
	}
	for option, path := range map[string]string{"tls-cert": c.tlsCert, "tls-key": c.tlsKey, "policies": c.policies} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			w.Option(option, "%v", err)
		}
	}
	if c.drain < 0 {
		w.Option("drain", "0s or more")
	}
}

// masterKey loads the key of the secret store, and notes what is wrong with it.
func (c *config) masterKey(w *program.Issues) postgres.MasterKey {
	key, err := postgres.MasterKeySource{
		File: c.masterKeyFile, Value: os.Getenv("METAL_MASTER_KEY"), CredentialsDir: os.Getenv("CREDENTIALS_DIRECTORY"),
	}.Load()
	w.Refused("master-key-file", err)
	return key
}

// plane is what the options say to a control plane.
func (c *config) plane(master postgres.MasterKey, token string) plane.Config {
	return plane.Config{
		Postgres: c.postgres, EventStore: c.eventstore, MasterKey: master, AdminToken: token,
		Listen: c.listen, TLSCert: c.tlsCert, TLSKey: c.tlsKey, InsecureHTTP: c.insecureHTTP,
		Gateway: plane.Gateway{Listen: c.gatewayListen, URL: c.gatewayURL, Names: c.gatewayNames},
		Kernel:  c.kernel, Initrd: c.initrd, KernelArgs: strings.Fields(strings.Join(c.kernelArgs, " ")),
		Policies: c.policies, Drain: c.drain, Logger: c.log.Logger(), Version: program.Version(),
	}
}
