package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
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
	logLevel       string
	logFormat      string
	drain          time.Duration
}

func (c *config) bindLog(flags *pflag.FlagSet) {
	flags.StringVar(&c.logLevel, "log-level", "info", "what to log: debug, info, warn or error")
	flags.StringVar(&c.logFormat, "log-format", "text", "how to log, to standard error: text or json")
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

func (c *config) bindServer(flags *pflag.FlagSet, listen string) {
	flags.StringVar(&c.listen, "listen", listen, "address and port of the HTTP API")
	flags.DurationVar(&c.drain, "drain", 10*time.Second, "how long requests may take to finish when it is stopped")
}

func (c *config) bindServe(flags *pflag.FlagSet) {
	c.bindServer(flags, ":8443")
	flags.StringVar(&c.tlsCert, "tls-cert", "", "file with the certificate chain of the HTTP API, PEM")
	flags.StringVar(&c.tlsKey, "tls-key", "", "file with its private key, PEM")
	flags.BoolVar(&c.insecureHTTP, "insecure-http", false, "serve HTTP without TLS, behind a proxy that terminates it")
	flags.StringVar(&c.adminTokenFile, "admin-token-file", "",
		"file with the token of the first administrator; without it, one is made and printed at the first start")
	flags.StringVar(&c.policies, "policies", "", "directory of further Cedar policies (*.cedar) that may only forbid")
}

// logger is the logger that the configuration asks for; what is wrong with it, check tells.
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

// check lists everything that is wrong with the options, before anything is started.
func (c *config) check(serving bool) error {
	var issues []fault.Issue
	wrong := func(option, format string, args ...any) {
		issues = append(issues, fault.Issue{Path: "--" + option, Message: fmt.Sprintf(format, args...)})
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		wrong("log-level", "one of debug, info, warn, error")
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		wrong("log-format", "one of text, json")
	}
	if c.postgres == "" {
		wrong("postgres", "needed, such as postgres:///metal?host=/run/postgresql")
	}
	if c.eventstore != "" && !strings.HasPrefix(c.eventstore, "esdb") && !strings.HasPrefix(c.eventstore, "kurrentdb") {
		wrong("eventstore", "an address that begins with esdb:// or esdb+discover://")
	}
	if serving {
		c.checkServer(wrong)
	}
	if len(issues) > 0 {
		return badConfig(issues)
	}
	return nil
}

func (c *config) checkServer(wrong func(option, format string, args ...any)) {
	if _, port, err := net.SplitHostPort(c.listen); err != nil || port == "" {
		wrong("listen", "host:port, such as :8443 or 127.0.0.1:8080")
	}
	switch {
	case c.insecureHTTP && (c.tlsCert != "" || c.tlsKey != ""):
		wrong("insecure-http", "not together with --tls-cert and --tls-key")
	case !c.insecureHTTP && c.tlsCert == "":
		wrong("tls-cert", "needed: bearer tokens don't travel in the clear; --insecure-http says that a proxy terminates TLS")
	case !c.insecureHTTP && c.tlsKey == "":
		wrong("tls-key", "needed with --tls-cert")
	}
	for option, path := range map[string]string{
		"tls-cert": c.tlsCert, "tls-key": c.tlsKey, "admin-token-file": c.adminTokenFile, "policies": c.policies,
	} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			wrong(option, "%v", err)
		}
	}
	if c.drain < 0 {
		wrong("drain", "0s or more")
	}
}

// masterKey loads the key of the secret store.
func (c *config) masterKey() (postgres.MasterKey, error) {
	return postgres.MasterKeySource{
		File: c.masterKeyFile, Value: os.Getenv("METAL_MASTER_KEY"), CredentialsDir: os.Getenv("CREDENTIALS_DIRECTORY"),
	}.Load()
}

// withIssue adds one more thing that is wrong to what check found, so that everything is told at once.
func withIssue(wrong error, option string, err error) error {
	var all *fault.Error
	if err == nil || !errors.As(wrong, &all) {
		return errors.Join(wrong, err)
	}
	var f *fault.Error
	message := err.Error()
	if errors.As(err, &f) {
		message = f.Message
	}
	all.Issues = append(all.Issues, fault.Issue{Path: option, Message: message})
	return all
}
