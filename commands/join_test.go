package commands_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificateOf(key ed25519.PrivateKey, now time.Time) agent.Certificate {
	var random [32]byte
	_, _ = rand.Read(random[:])
	return agent.Certificate{
		Fingerprint: hex.EncodeToString(random[:]), PublicKey: key.Public().(ed25519.PublicKey),
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func (s *signer) facts(token string, as agent.Role, macs ...string) commands.JoinFacts {
	return commands.JoinFacts{
		Token: token, Role: as, PublicKey: s.cert.PublicKey, Claims: agent.Claims{MACs: macs, Serial: "S1"},
		Issue: func(id.Agent, id.Node, agent.Role) (agent.Certificate, error) { return s.cert, nil },
	}
}

func discovery(n id.Node) jointoken.Minted {
	return jointoken.Minted{Role: jointoken.RoleDiscovery, Node: n, ExpiresAt: at("2026-12-01T12:00:00Z")}
}

func TestATokenIsMintedOnce(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	call := system()
	minted, token, err := w.MintJoinToken(ctx, call, discovery(n))
	if err != nil {
		t.Fatal(err)
	}
	again, same, err := w.over(w.log).MintJoinToken(ctx, call, discovery(n))
	if err != nil || same != token || again.State.Token != minted.State.Token {
		t.Errorf("again: %v", err)
	}
	events, err := w.log.Read(ctx, jointoken.StreamOf(minted.State.Token), 0)
	if err != nil || len(events) != 1 || strings.Contains(string(events[0].Data), strings.Split(token, ".")[1]) {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, _, err := w.MintJoinToken(ctx, of(id.Of[id.Tenant](fresh())), discovery(n)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of another tenant: %v", err)
	}
}

func TestATokenWorksOnce(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	facts := discovery(n)
	facts.Expect = jointoken.Expect{Serial: "S1", MACs: []string{"02:00:00:00:00:01"}}
	minted, token, err := w.MintJoinToken(ctx, system(), facts)
	if err != nil {
		t.Fatal(err)
	}
	machine, thief := &signer{key: newKey(t)}, &signer{key: newKey(t)}
	machine.cert, thief.cert = certificateOf(machine.key, w.clock.read()), certificateOf(thief.key, w.clock.read())
	for name, test := range map[string]struct {
		facts commands.JoinFacts
		want  fault.Code
	}{
		"another machine":   {thief.facts(token, agent.RoleRamdisk, "02:00:00:00:00:99"), fault.Forbidden},
		"another role":      {thief.facts(token, agent.RoleNode, "02:00:00:00:00:01"), fault.Forbidden},
		"half of the token": {thief.facts(minted.State.Token.String(), agent.RoleRamdisk), fault.Unauthenticated},
		"a guess":           {thief.facts(minted.State.Token.String()+".guess", agent.RoleRamdisk), fault.Unauthenticated},
		"a token of nobody": {thief.facts(id.Of[id.JoinToken](fresh()).String()+".x", agent.RoleRamdisk), fault.Unauthenticated},
		"nothing":           {thief.facts("", agent.RoleRamdisk), fault.Unauthenticated},
	} {
		if _, err := w.Join(ctx, system(), test.facts); fault.CodeOf(err) != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	joined, err := w.Join(ctx, system(), machine.facts(token, agent.RoleRamdisk, "02:00:00:00:00:01"))
	if err != nil || joined.Node != n || joined.ID != commands.AgentOf(n) {
		t.Fatalf("nothing of that spent the token, but: %v", err)
	}
	machine.cert = certificateOf(machine.key, w.clock.read())
	if again, err := w.Join(ctx, system(), machine.facts(token, agent.RoleRamdisk, "02:00:00:00:00:01")); err != nil || again.ID != joined.ID {
		t.Errorf("the same key after a lost answer: %v", err)
	}
	if _, err := w.Join(ctx, system(), thief.facts(token, agent.RoleRamdisk, "02:00:00:00:00:01")); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("another key with the same token: %v", err)
	}
	if after, err := w.JoinToken(ctx, minted.State.Token); err != nil || len(after.Uses) != 1 {
		t.Errorf("%d uses, %v", len(after.Uses), err)
	}
}

// W20: a machine that is being taken back does not come back as what it was.
func TestAnOldOSIsNotLetIn(t *testing.T) {
	w := newWorld(t).equip(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	w.ready(t, n)
	if _, err := w.Deploy(ctx, system(), n, imageHost); err != nil {
		t.Fatal(err)
	}
	deploy, err := w.StartWorkflow(ctx, system(), n, imageHost)
	if err != nil {
		t.Fatal(err)
	}
	facts := jointoken.Minted{Role: jointoken.RoleProvisioned, Node: n, Workflow: deploy.State.Workflow.ID, MaxUses: 2, ExpiresAt: at("2026-12-01T12:00:00Z")}
	_, bound, err := w.MintJoinToken(ctx, system(), facts)
	if err != nil {
		t.Fatal(err)
	}
	facts.Workflow = id.Workflow{}
	_, unbound, err := w.MintJoinToken(ctx, system(), facts)
	if err != nil {
		t.Fatal(err)
	}
	os := &signer{key: newKey(t)}
	os.cert = certificateOf(os.key, w.clock.read())
	joined, err := w.Join(ctx, system(), os.facts(bound, agent.RoleNode))
	if err != nil {
		t.Fatal(err)
	}
	open := func() error {
		_, err := w.OpenSession(ctx, system(), joined.ID, os.cert.Fingerprint, agent.RoleNode, fresh().String(), "1")
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Complete(ctx, system(), n, deploy.State.Workflow.ID, node.RoleHost); err != nil {
		t.Fatal(err)
	}
	again := &signer{key: newKey(t)}
	again.cert = certificateOf(again.key, w.clock.read())
	if _, err := w.Join(ctx, system(), again.facts(bound, agent.RoleNode)); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("the workflow is over, and its token works: %v", err)
	}
	if _, err := w.Undeploy(ctx, system(), n, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Join(ctx, system(), again.facts(unbound, agent.RoleNode)); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("the OS of a node that is being released joined: %v", err)
	}
	if err := open(); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("the OS of a node that is being released opened a session: %v", err)
	}
}

func TestAMachineBringsItself(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	_, token, err := w.MintJoinToken(ctx, system(), jointoken.Minted{
		Role: jointoken.RoleNode, Pool: w.pool, MaxUses: 2, ExpiresAt: at("2026-12-01T12:00:00Z"), Labels: map[string]string{"rack": "7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	first, twin := &signer{key: newKey(t)}, &signer{key: newKey(t)}
	first.cert, twin.cert = certificateOf(first.key, w.clock.read()), certificateOf(twin.key, w.clock.read())
	joined, err := w.Join(ctx, system(), first.facts(token, agent.RoleNode, "02:00:00:00:00:01"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := w.log.Read(ctx, node.StreamOf(joined.Node), 0)
	if err != nil || len(state) != 2 || state[1].Type != "node.provision.joined" {
		t.Fatalf("%d events of the node, %v", len(state), err)
	}
	_, err = w.Join(ctx, system(), twin.facts(token, agent.RoleNode, "02:00:00:00:00:01"))
	var taken *fault.Error
	if !errors.As(err, &taken) || taken.Code != fault.Conflict || strings.Contains(taken.Error(), joined.Node.String()) ||
		taken.Details["holder"] != nil {
		t.Errorf("another machine with the same MAC, which may be anybody's, hears of its holder: %v %v", err, taken.Details)
	}
	first.cert = certificateOf(first.key, w.clock.read())
	if again, err := w.Join(ctx, system(), first.facts(token, agent.RoleNode, "02:00:00:00:00:01")); err != nil || again.Node != joined.Node {
		t.Errorf("the same again: %v", err)
	}
	if other, err := w.Join(ctx, system(), twin.facts(token, agent.RoleNode, "02:00:00:00:00:02")); err != nil || other.Node == joined.Node {
		t.Errorf("the conflict spent the token: %v", err)
	}
}

func TestASitesAgentsAreOneEach(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	site := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.Site
	minted, token, err := w.MintJoinToken(ctx, system(), jointoken.Minted{Role: jointoken.RoleSite, Site: site, MaxUses: 2, ExpiresAt: at("2026-12-01T12:00:00Z")})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[id.Agent]bool{}
	for range 2 {
		s := &signer{key: newKey(t)}
		s.cert = certificateOf(s.key, w.clock.read())
		joined, err := w.Join(ctx, system(), s.facts(token, agent.RoleSite))
		if err != nil || joined.Site != site || !id.IsZero(joined.Node) {
			t.Fatal(err)
		}
		seen[joined.ID] = true
	}
	if len(seen) != 2 {
		t.Errorf("two machines are %d agents", len(seen))
	}
	if _, err := w.RevokeJoinToken(ctx, system(), minted.State.Token, "lost"); err != nil {
		t.Fatal(err)
	}
}

func TestRenewal(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	s := w.signer(t, n)
	before := s.cert
	after := certificateOf(newKey(t), w.clock.read())
	if _, err := w.RenewCertificate(ctx, system(), s.id, before.Fingerprint, after); err != nil {
		t.Fatal(err)
	}
	use := func(c agent.Certificate) fault.Code {
		_, err := w.UseCertificate(ctx, system(), s.id, c.Fingerprint)
		return fault.CodeOf(err)
	}
	if use(before) != "" || use(after) != "" || use(before) != fault.Unauthenticated {
		t.Error("the one before is good until the new one is used, and not after")
	}
	if known, err := w.Agent(ctx, s.id); err != nil || len(known.Certificates) != 2 {
		t.Errorf("%d certificates are known, %v", len(known.Certificates), err)
	}
}

// The ramdisk of a rescue joins beside the installed OS, which comes back afterwards with the certificate it had.
func TestRescueAndBack(t *testing.T) {
	w := newWorld(t).equip(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	w.ready(t, n)
	if _, err := w.Deploy(ctx, system(), n, imageHost); err != nil {
		t.Fatal(err)
	}
	join := func(role jointoken.Role, as agent.Role) *signer {
		t.Helper()
		running, err := w.StartWorkflow(ctx, system(), n, imageHost)
		if err != nil {
			t.Fatal(err)
		}
		wf := running.State.Workflow.ID
		_, token, err := w.MintJoinToken(ctx, system(), jointoken.Minted{Role: role, Node: n, Workflow: wf, ExpiresAt: at("2026-12-01T12:00:00Z")})
		if err != nil {
			t.Fatal(err)
		}
		s := &signer{key: newKey(t)}
		s.cert = certificateOf(s.key, w.clock.read())
		if _, err := w.Join(ctx, system(), s.facts(token, as)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.OpenSession(ctx, system(), commands.AgentOf(n), s.cert.Fingerprint, as, fresh().String(), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Complete(ctx, system(), n, wf, ""); err != nil {
			t.Fatal(err)
		}
		return s
	}
	os := join(jointoken.RoleProvisioned, agent.RoleNode)
	if _, err := w.Rescue(ctx, system(), n); err != nil {
		t.Fatal(err)
	}
	ramdisk := join(jointoken.RoleDiscovery, agent.RoleRamdisk)
	if err := w.proves(t, n, os); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("the installed OS signed for the ramdisk beside it: %v", err)
	}
	if err := w.proves(t, n, ramdisk); err != nil {
		t.Errorf("the ramdisk signed: %v", err)
	}
	if _, err := w.OpenSession(ctx, system(), commands.AgentOf(n), os.cert.Fingerprint, agent.RoleNode, "back", ""); err != nil {
		t.Errorf("the installed OS after a rescue: %v", err)
	}
}

// proves settles a wipe that the machine's ramdisk was asked for, signed by one of its agents.
func (w *world) proves(t *testing.T, n id.Node, by *signer) error {
	t.Helper()
	ctx := context.Background()
	asked, err := w.RequestAgentCommand(ctx, system(), wipe(n, by.cert.Fingerprint))
	if err != nil {
		t.Fatal(err)
	}
	c := asked.State.AgentCommand
	if _, err := w.HandOutAgentCommand(ctx, system(), c, commands.AgentOf(n), "b1"); err != nil {
		t.Fatal(err)
	}
	const result = `{"disks":[]}`
	_, err = w.SettleAgentCommand(ctx, system(), c, agentcommand.Settle{
		Agent: commands.AgentOf(n), BootID: "b1", Status: agentcommand.Succeeded, Result: json.RawMessage(result),
		Attestation: by.sign(asked.State, result, w.clock.read()),
	})
	return err
}
