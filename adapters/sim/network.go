package sim

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

const (
	bootTimeout = 10 * time.Second // of one request that firmware makes
	scriptMost  = 64 << 10
	askAgain    = time.Second
	askFor      = time.Minute // how long firmware asks for somebody who tells it what to boot
	tokenTries  = 60          // another of the site's agents may have to take over first
	tokenPause  = time.Second
)

// network asks the boot servers on behalf of one port after the other: the first that answers is the one, as with DHCP.
func (m *Machine) network(l *life) (program, bool) {
	server := m.site.boots()
	if server == "" {
		m.tell(KindBoot, "network: no boot server")
		return program{}, false
	}
	for _, nic := range m.nics() {
		script, err := m.askScript(l, netboot.Sites(server), nic.MAC)
		if p, ok := m.loaded(l, "network "+nic.Name, script, err); ok {
			return p, true
		}
	}
	return program{}, false
}

// askScript asks again while none of several answers, as firmware does that hears of no DHCP server.
func (m *Machine) askScript(l *life, servers []string, mac string) (script netboot.Boot, err error) {
	for asked := time.Duration(0); ; asked += askAgain {
		for _, server := range servers {
			ctx, cancel := context.WithTimeout(l.ctx, bootTimeout)
			script, err = netboot.FetchScript(ctx, m.site.config.HTTP, server, mac)
			cancel()
			if err == nil {
				return script, nil
			}
		}
		if len(servers) == 1 || asked >= askFor || m.site.config.Clock.Sleep(l.ctx, askAgain) != nil {
			return netboot.Boot{}, err
		}
	}
}

// script boots from a URL: a script, or anything else, which is taken for a boot program that asks the boot server.
func (m *Machine) script(l *life, url string) (program, bool) {
	text, err := m.fetch(l, url, scriptMost)
	if err != nil {
		return m.loaded(l, url, netboot.Boot{}, err)
	}
	if !strings.HasPrefix(text, "#!ipxe") {
		return m.network(l)
	}
	script, err := netboot.ParseScript(text)
	return m.loaded(l, url, script, err)
}

// loaded is what a script comes to.
func (m *Machine) loaded(l *life, from string, script netboot.Boot, err error) (program, bool) {
	if err == nil && !script.Exit && m.site.config.FetchKernel {
		for _, file := range []string{script.Kernel, script.Initrd} {
			if _, err = m.fetch(l, file, -1); err != nil {
				break
			}
		}
	}
	switch {
	case l.ctx.Err() != nil:
		return program{}, false
	case err != nil:
		m.tell(KindBoot, from+": "+err.Error())
		return program{}, false
	case script.Exit:
		m.tell(KindBoot, from+": exit")
		return program{}, false
	}
	m.tell(KindBoot, from+": ramdisk")
	return program{running: Ramdisk, run: func(b *boot) { b.runRamdisk(script) }}, true
}

// fetch gets a file, or its first bytes where most is above zero; the rest is read all the same.
func (m *Machine) fetch(l *life, url string, most int64) (string, error) {
	ctx, cancel := context.WithTimeout(l.ctx, bootTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidInput, "this is not a URL to boot from")
	}
	res, err := m.site.config.HTTP.Do(req)
	if err != nil {
		return "", fault.Wrap(err, fault.Unavailable, "the server can't be reached")
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return "", fault.New(fault.NotFound, "the server answers %d", res.StatusCode)
	}
	if most < 0 {
		_, err = io.Copy(io.Discard, res.Body)
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, most))
	return string(text), err
}

// runRamdisk is the ramdisk: it fetches its join token and runs its agent.
func (b *boot) runRamdisk(script netboot.Boot) {
	m := b.m
	var macs []string
	for _, n := range m.nics() {
		macs = append(macs, n.MAC)
	}
	var token string
	var err error
	for range tokenTries {
		token, err = netboot.FetchToken(b.ctx, m.site.config.HTTP, script, macs, m.spec.UUID)
		if fault.CodeOf(err) != fault.Unavailable {
			break
		}
		if m.site.config.Clock.Sleep(b.ctx, tokenPause) != nil {
			return
		}
	}
	if err != nil {
		m.tell(KindAgent, "no join token: "+err.Error())
		<-b.ctx.Done()
		return
	}
	b.runAgent(agent.Options{
		Gateway: script.Gateway, CA: script.CA, Token: token, Role: agentcommand.RoleRamdisk, State: agent.MemoryState(),
	})
}
