package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/cmd/program"
)

// app is what every command works with.
type app struct {
	in   *os.File
	out  io.Writer
	err  io.Writer
	flag globalFlags

	inTerminal, outTerminal bool

	tokenless bool // no token was given

	started bool // a command runs: an error before that is one of usage
}

// globalFlags are those of every command.
type globalFlags struct {
	context, url, tokenFile string
	tls                     client.TLS
	output                  string
	noHeaders               bool
	color                   string
}

func standard() *app {
	a := &app{
		in:          os.Stdin,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
	}
	a.to(os.Stdout, os.Stderr)
	return a
}

// to says where is written, to be read.
func (a *app) to(out, err io.Writer) {
	a.out, a.err = visible{out, a.colored}, visible{err, func() bool { return false }}
}

// say writes a line for people to standard error, so that standard output stays what was asked for.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format+"\n", args...) }

// connect makes a client for the control plane that the flags, the environment or the current context name.
func (a *app) connect() (*client.Client, error) {
	to, err := a.target()
	if err != nil {
		return nil, err
	}
	token, err := to.token()
	if err != nil {
		return nil, err
	}
	a.tokenless = token == ""
	return client.New(client.Options{URL: to.URL, Token: token, TLS: to.tls(), UserAgent: "metalctl/" + program.Version()})
}

// target decides by: flags, then the environment, then the context named by either, then the current one.
func (a *app) target() (target, error) {
	t, err := a.namedTarget()
	if err != nil {
		return target{}, err
	}
	override(&t.URL, os.Getenv("METAL_URL"), a.flag.url)
	override(&t.CAFile, os.Getenv("METAL_CA_FILE"), a.flag.tls.CAFile)
	override(&t.CertFile, os.Getenv("METAL_CERT_FILE"), a.flag.tls.CertFile)
	override(&t.KeyFile, os.Getenv("METAL_KEY_FILE"), a.flag.tls.KeyFile)
	switch {
	case a.flag.tokenFile != "":
		t.TokenFile, t.Token = a.flag.tokenFile, ""
	case os.Getenv("METAL_TOKEN") != "":
		t.TokenFile, t.Token = "", os.Getenv("METAL_TOKEN")
	case os.Getenv("METAL_TOKEN_FILE") != "":
		t.TokenFile, t.Token = os.Getenv("METAL_TOKEN_FILE"), ""
	}
	if t.URL == "" {
		return target{}, usage("no control plane is named: use --url, METAL_URL, or `metalctl context add`")
	}
	return t, nil
}

func (a *app) namedTarget() (target, error) {
	name := os.Getenv("METALCTL_CONTEXT")
	override(&name, a.flag.context)
	known, err := readContexts()
	if err != nil {
		return target{}, err
	}
	if name == "" {
		name = known.Current
	}
	if name == "" {
		return target{}, nil
	}
	t, ok := known.Contexts[name]
	if !ok {
		return target{}, usage("there is no context %q; see `metalctl context list`", name)
	}
	if t.Token != "" {
		if path := readableByOthers(); path != "" {
			a.say("metalctl: others may read the token in %[1]s: chmod 600 %[1]s, and have a new token issued if they could", path)
		}
	}
	return t, nil
}

// override sets to to the last of values that is not empty.
func override(to *string, values ...string) {
	for _, v := range values {
		if v != "" {
			*to = v
		}
	}
}

// token reads the bearer token. It is nowhere but in a file, the environment or the contexts.
func (t target) token() (string, error) {
	if t.TokenFile == "" {
		return strings.TrimSpace(t.Token), nil
	}
	raw, err := os.ReadFile(t.TokenFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", usage("there is no token file %s", t.TokenFile)
	}
	if err != nil {
		return "", usage("the token cannot be read: %s", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

func (t target) tls() client.TLS {
	return client.TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}
}
