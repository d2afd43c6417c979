package lab

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// Place is where a further agent of the site runs.
type Place struct {
	Host   string                         // its address
	Within func(start func() error) error // starts a process there; nil: beside the test
	Flags  []string                       // further flags of bcd site
}

// siteAgents lists where the site's agents beside the first one run.
func (o Options) siteAgents() []Place {
	all := slices.Clone(o.Elsewhere)
	for n := 1; n < o.SiteAgents; n++ {
		all = append(all, Place{Host: o.Host, Flags: o.SiteFlags})
	}
	return all
}

// elsewherePort is the boot server's where it has a host to itself.
const elsewherePort = "8081"

// bootAddress is where the boot server of an agent listens.
func (p Place) bootAddress(t testing.TB) string {
	t.Helper()
	if p.Within != nil {
		return net.JoinHostPort(p.Host, elsewherePort)
	}
	return freeAddressOf(t, p.Host)
}

// anotherSiteAgent starts a further agent of the site, with a boot server and a state of its own.
func (l *Lab) anotherSiteAgent(n int, place Place) {
	l.T.Helper()
	token, err := l.Client.CreateJoinToken(l.T.Context(), contract.NewJoinToken{Role: "site", Site: l.Site})
	l.must(err)
	name := "bcd-" + strconv.Itoa(n)
	boot := place.bootAddress(l.T)
	url := "http://" + boot
	if place.Within == nil {
		url = "http://" + l.seen(boot)
	}
	p := newProgram(l.T, "bcd", nil, append([]string{
		"site", "--gateway", l.Gateway, "--ca-sha256", l.CA, "--token-file", l.file("join-token-"+name, token.Token), "--name", name,
		"--state-dir", filepath.Join(l.dir, name), "--boot-listen", boot, "--boot-url", url, "--boot-gateway", l.gatewaySeen(),
	}, place.Flags...)...)
	p.within, p.answers = place.Within, func() error { return listening(boot) }
	p.Start()
	l.Others, l.boots = append(l.Others, p), append(l.boots, url)
}

var errNobody = errors.New("nobody has the boot lease")

// BootHolder waits until an agent of the site other than one has its boot lease.
func (l *Lab) BootHolder(other string) (agent string) {
	l.T.Helper()
	l.must(Poll(Patience, "another agent than "+other+" to have the boot lease", func() error {
		at, err := l.Client.GetSite(l.T.Context(), l.Site)
		switch {
		case err != nil:
			return err
		case at.Boot == nil || at.Boot.Agent == other:
			return errNobody
		}
		agent = at.Boot.Agent
		return nil
	}))
	return agent
}

// BootServers waits until both agents would serve network boot, of which one does, and gives their programs.
func (l *Lab) BootServers(holder string) map[string]*Program {
	l.T.Helper()
	programs := map[string]*Program{}
	l.must(Poll(Patience, "both agents to be there", func() error {
		for a, err := range l.Client.Agents(l.T.Context(), l.Site, "", "site") {
			if err != nil || a.Boot == nil || !slices.Contains(l.boots, a.Boot.URL) || (a.Boot.Until != nil) != (a.ID == holder) {
				return fmt.Errorf("agent %s: %+v; %s has the lease: %w", a.ID, a.Boot, holder, err)
			}
			programs[a.ID] = append([]*Program{l.SiteAgent}, l.Others...)[slices.Index(l.boots, a.Boot.URL)]
		}
		if len(programs) != 2 {
			return errNobody
		}
		return nil
	}))
	return programs
}
