package lab

import (
	"path/filepath"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// anotherSiteAgent starts a further agent of the site, with a boot server and a state of its own.
func (l *Lab) anotherSiteAgent(n int) {
	l.T.Helper()
	token, err := l.Client.CreateJoinToken(l.T.Context(), contract.NewJoinToken{Role: "site", Site: l.Site})
	l.must(err)
	name := "bcd-" + strconv.Itoa(n)
	boot := freeAddressOf(l.T, l.options.Host)
	url := "http://" + l.seen(boot)
	p := newProgram(l.T, "bcd", nil, append([]string{
		"site", "--gateway", l.Gateway, "--ca-sha256", l.CA, "--token-file", l.file("join-token-"+name, token.Token), "--name", name,
		"--state-dir", filepath.Join(l.dir, name), "--boot-listen", boot, "--boot-url", url, "--boot-gateway", l.gatewaySeen(),
	}, l.options.SiteFlags...)...)
	p.answers = func() error { return listening(boot) }
	p.Start()
	l.Others, l.boots = append(l.Others, p), append(l.boots, url)
}
