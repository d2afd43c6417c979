package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/lab"
)

// stranger is a machine that somebody else holds.
type stranger struct{ claims protocol.Claims }

func (s stranger) BootID() string                                        { return "a-boot-of-a-stranger" }
func (s stranger) Claims(context.Context) (protocol.Claims, error)       { return s.claims, nil }
func (s stranger) Hardware(context.Context) (h node.Hardware, err error) { return h, nil }
func (s stranger) Disks(context.Context) ([]disk.Device, error)          { return nil, nil }
func (s stranger) Kexec(context.Context, string) error                   { return nil }
func (s stranger) Reboot(context.Context) error                          { return nil }
func (s stranger) PowerOff(context.Context) error                        { return nil }
func (s stranger) Burn(context.Context, agentcommand.KindName, agentcommand.Burnin, disk.Progress) (b agentcommand.Burned, err error) {
	return b, nil
}

// memory keeps an identity for as long as nobody asks for it.
type memory struct{}

func (memory) Load() (i agent.Identity, has bool, err error) { return i, false, nil }
func (memory) Save(agent.Identity) error                     { return nil }

// join presents a token, and gives why it was turned away; nil: it was let in.
func join(t *testing.T, l *lab.Lab, token string, claims protocol.Claims) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return agent.Run(ctx, agent.Options{
		Gateway: l.Gateway, CA: l.CA, Role: agentcommand.RoleRamdisk, Token: token, State: memory{}, Machine: stranger{claims},
		BootID: "a-boot-of-a-stranger", Version: "1", Room: 1,
	})
}

// stolenToken takes a machine's join token off the wire, and presents it from others. None is let in, the token is not spent by
// that, and the machine itself comes up all the same.
func stolenToken(t *testing.T, l *lab.Lab, m sim.Listed) {
	l.Inject(sim.Fault{Machine: m.Name, HungBoots: 1}) // it holds its boot entry open
	n := l.EnrollOne(m)
	var boot netboot.Boot
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	must(t, lab.Poll(lab.Patience, "a boot entry", func() (err error) {
		if boot, err = netboot.FetchScript(t.Context(), web, l.Boot, m.MACs[0]); err == nil && boot.Exit {
			err = fmt.Errorf("there is none for %s", m.MACs[0])
		}
		return err
	}))
	if _, err := netboot.FetchToken(t.Context(), web, boot, []string{"00:16:3e:00:00:01"}, m.UUID); err == nil {
		t.Error("the boot server gave the token to another machine")
	}
	token, err := netboot.FetchToken(t.Context(), web, boot, m.MACs, m.UUID)
	must(t, err)
	if _, err := netboot.FetchToken(t.Context(), web, boot, m.MACs, m.UUID); err == nil {
		t.Error("the boot server gave the token twice")
	}
	for what, claims := range map[string]protocol.Claims{
		"another MAC":  {MACs: []string{"00:16:3e:00:00:01"}, ProductUUID: m.UUID, Serial: m.Serial},
		"nothing":      {},
		"another UUID": {MACs: m.MACs, ProductUUID: "11111111-2222-4333-8444-555555555555", Serial: m.Serial},
	} {
		if err := join(t, l, token, claims); err == nil {
			t.Errorf("a machine that claims %s was let in", what)
		}
	}
	l.WaitState(n, "ready")
	madeTokens(t, l, n, m)
}

// madeTokens are those that an operator makes for one machine.
func madeTokens(t *testing.T, l *lab.Lab, n string, m sim.Listed) {
	t.Helper()
	for what, expect := range map[string]contract.JoinExpect{
		"MAC":    {MACs: []string{m.MACs[0]}},
		"serial": {Serial: m.Serial},
	} {
		made, err := l.Client.CreateJoinToken(t.Context(), contract.NewJoinToken{Role: "discovery", Node: n, Expect: &expect})
		must(t, err)
		claims := protocol.Claims{MACs: []string{"00:16:3e:00:00:02"}, ProductUUID: m.UUID, Serial: "SOMEBODY-ELSE"}
		if err := join(t, l, made.Token, claims); err == nil {
			t.Errorf("a machine with another %s was let in", what)
		}
		if made, err = l.Client.GetJoinToken(t.Context(), made.ID); err != nil || made.Uses != 0 {
			t.Errorf("a refused join has spent the token: %+v, %v", made, err)
		}
	}
}
