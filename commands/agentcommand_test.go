package commands_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

func wipe(n id.Node, key string) agentcommand.Requested {
	return agentcommand.Requested{
		Key: key, Kind: agentcommand.DiskWipe, Role: agentcommand.RoleRamdisk, Node: n, Attempt: 1,
		NotAfter: at("2026-11-29T13:00:00Z"), Payload: json.RawMessage(` {"method": "quick"} `),
	}
}

func TestARequestIsFoundAgain(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	first, err := w.RequestAgentCommand(ctx, system(), wipe(n, "wf:1:wipe#1"))
	if err != nil {
		t.Fatal(err)
	}
	if string(first.State.Payload) != `{"method":"quick"}` {
		t.Errorf("the payload is kept as %s", first.State.Payload)
	}
	other := wipe(n, "wf:1:wipe#1")
	other.Payload = json.RawMessage(`{"method":"crypto-erase"}`)
	for name, s := range map[string]*commands.Service{"the same replica": w.Service, "another replica": w.over(w.log)} {
		again, err := s.RequestAgentCommand(ctx, system(), wipe(n, "wf:1:wipe#1"))
		if err != nil || again.Version != 1 || again.State.AgentCommand != first.State.AgentCommand {
			t.Errorf("%s: version %d, %v", name, again.Version, err)
		}
		if _, err := s.RequestAgentCommand(ctx, system(), other); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s: another request under the key: %v", name, err)
		}
	}
}

func TestWhatMayBeRequested(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := id.Of[id.Node](fresh())
	for name, test := range map[string]struct {
		change func(*agentcommand.Requested)
		want   fault.Code
	}{
		"an unknown kind":   {func(r *agentcommand.Requested) { r.Kind = "disk.eat" }, fault.InvalidConfig},
		"a role too many":   {func(r *agentcommand.Requested) { r.Role = agentcommand.RoleSite }, fault.InvalidConfig},
		"an unknown field":  {func(r *agentcommand.Requested) { r.Payload = json.RawMessage(`{"method":"quick","x":1}`) }, fault.InvalidInput},
		"a wrong value":     {func(r *agentcommand.Requested) { r.Payload = json.RawMessage(`{"method":"none"}`) }, fault.InvalidInput},
		"two values":        {func(r *agentcommand.Requested) { r.Payload = json.RawMessage(`{"method":"quick"}{}`) }, fault.InvalidInput},
		"no key":            {func(r *agentcommand.Requested) { r.Key = "" }, fault.InvalidInput},
		"nothing but right": {func(*agentcommand.Requested) {}, ""},
	} {
		r := wipe(n, name)
		test.change(&r)
		if _, err := w.RequestAgentCommand(ctx, system(), r); fault.CodeOf(err) != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	if _, err := w.RequestAgentCommand(ctx, of(id.Of[id.Tenant](fresh())), wipe(n, "k")); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("asked by a principal: %v", err)
	}
}

func TestSecretsAreNoted(t *testing.T) {
	w := newWorld(t)
	done, err := w.RequestAgentCommand(context.Background(), system(), agentcommand.Requested{
		Key: "k", Kind: agentcommand.DriverInvoke, Role: agentcommand.RoleSite, NotAfter: at("2026-11-29T13:00:00Z"), Payload: json.RawMessage(
			`{"driver":"redfish","concern":"power","operation":"get","bmc":{"address":"https://10.0.0.1","tls":{},"credentialsRef":"secret:b"},
			"with":{"deep":["secret:a",{"x":"secret:b"}],"no":"a secret:c"}}`),
	})
	if err != nil || !slices.Equal(done.State.Secrets, []string{"secret:a", "secret:b"}) {
		t.Errorf("%v, %v", done.State.Secrets, err)
	}
}

func TestOneHandOutWins(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	asked, err := w.RequestAgentCommand(ctx, system(), wipe(id.Of[id.Node](fresh()), "k"))
	if err != nil {
		t.Fatal(err)
	}
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		gateway, to := w.over(w.log), id.Of[id.Agent](fresh())
		all.Go(func() {
			_, err := gateway.HandOutAgentCommand(ctx, system(), asked.State.AgentCommand, to, "boot"+strconv.Itoa(i))
			switch fault.CodeOf(err) {
			case "":
				won.Add(1)
			case fault.Conflict:
			default:
				t.Errorf("a loser gets %v", err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won", won.Load())
	}
}

// signer is a ramdisk agent that has joined.
type signer struct {
	key  ed25519.PrivateKey
	id   id.Agent
	cert agent.Certificate
}

func (w *world) signer(t *testing.T, n id.Node) *signer {
	t.Helper()
	s := &signer{key: newKey(t), id: commands.AgentOf(n)}
	_, token, err := w.MintJoinToken(context.Background(), system(), discovery(n))
	if err != nil {
		t.Fatal(err)
	}
	s.cert = certificateOf(s.key, w.clock.read())
	if _, err := w.Join(context.Background(), system(), s.facts(token, agent.RoleRamdisk)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *signer) sign(c agentcommand.State, result string, when time.Time) *agentcommand.Attestation {
	input := agentcommand.SigningInput(c.AgentCommand, c.Kind, c.Node, c.Attempt, "b1", c.Payload, []byte(result), when)
	return &agentcommand.Attestation{Certificate: s.cert.Fingerprint, Signature: ed25519.Sign(s.key, input), At: when}
}

func TestSignedResults(t *testing.T) {
	const result, forged = `{"disks":[]}`, `{"disks":[1]}`
	for name, test := range map[string]struct {
		change   func(*testing.T, *world, *signer, *agentcommand.Settle)
		attested bool
		want     fault.Code
	}{
		"as it should be": {func(*testing.T, *world, *signer, *agentcommand.Settle) {}, true, ""},
		"written with more space": {func(_ *testing.T, _ *world, _ *signer, s *agentcommand.Settle) {
			s.Result = json.RawMessage(` {"disks" : [ ]}`)
		}, true, ""},
		"another result": {func(_ *testing.T, _ *world, _ *signer, s *agentcommand.Settle) { s.Result = json.RawMessage(forged) }, false, fault.InvalidInput},
		"another time": {func(_ *testing.T, _ *world, _ *signer, s *agentcommand.Settle) {
			s.Attestation.At = s.Attestation.At.Add(time.Second)
		}, false, fault.InvalidInput},
		"a certificate of nobody":   {func(_ *testing.T, _ *world, _ *signer, s *agentcommand.Settle) { s.Attestation.Certificate = "00" }, false, fault.InvalidInput},
		"a time in the future":      {func(_ *testing.T, w *world, _ *signer, _ *agentcommand.Settle) { w.clock.advance(-time.Hour) }, false, fault.InvalidInput},
		"long after it was renewed": {func(_ *testing.T, w *world, _ *signer, _ *agentcommand.Settle) { w.clock.advance(72 * time.Hour) }, true, ""},
		"no signature":              {func(_ *testing.T, _ *world, _ *signer, s *agentcommand.Settle) { s.Attestation = nil }, false, ""},
		"claiming to be attested":   {func(_ *testing.T, _ *world, _ *signer, s *agentcommand.Settle) { s.Attestation, s.Attested = nil, true }, false, ""},
		"by a revoked agent": {func(t *testing.T, w *world, by *signer, _ *agentcommand.Settle) {
			if _, err := w.RevokeAgent(context.Background(), system(), by.id, "stolen"); err != nil {
				t.Fatal(err)
			}
		}, false, fault.InvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ctx := context.Background()
			n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
			by := w.signer(t, n)
			asked, err := w.RequestAgentCommand(ctx, system(), wipe(n, "k"))
			if err != nil {
				t.Fatal(err)
			}
			c := asked.State.AgentCommand
			if _, err := w.HandOutAgentCommand(ctx, system(), c, by.id, "b1"); err != nil {
				t.Fatal(err)
			}
			settle := agentcommand.Settle{
				Agent: by.id, BootID: "b1", Status: agentcommand.Succeeded, Result: json.RawMessage(result),
				Attestation: by.sign(asked.State, result, w.clock.read()),
			}
			test.change(t, w, by, &settle)
			done, err := w.SettleAgentCommand(ctx, system(), c, settle)
			if fault.CodeOf(err) != test.want || done.State.Attested != test.attested {
				t.Fatalf("attested %t, %v; want %t, %s", done.State.Attested, err, test.attested, test.want)
			}
			after, _, err := w.over(w.log).AgentCommand(ctx, c)
			if err != nil || after.Status.Settled() != (test.want == "") || after.Attested != test.attested {
				t.Errorf("stored as %s, attested %t, %v", after.Status, after.Attested, err)
			}
			if again, err := w.SettleAgentCommand(ctx, system(), c, settle); test.want == "" && (err != nil || again.Version != done.Version) {
				t.Errorf("the same again: version %d after %d, %v", again.Version, done.Version, err)
			}
		})
	}
}

func TestTheCheckOfSignaturesIsReplaceable(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	w.VerifyWith(acceptAnything{})
	to := id.Of[id.Agent](fresh())
	asked, err := w.RequestAgentCommand(ctx, system(), wipe(id.Of[id.Node](fresh()), "k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.HandOutAgentCommand(ctx, system(), asked.State.AgentCommand, to, "b1"); err != nil {
		t.Fatal(err)
	}
	done, err := w.SettleAgentCommand(ctx, system(), asked.State.AgentCommand, agentcommand.Settle{
		Agent: to, BootID: "b1", Status: agentcommand.Succeeded, Attestation: &agentcommand.Attestation{},
	})
	if err != nil || !done.State.Attested {
		t.Errorf("attested %t, %v", done.State.Attested, err)
	}
}

// acceptAnything is for tests only.
type acceptAnything struct{}

func (acceptAnything) Verify(agentcommand.State, string, []byte, agentcommand.Attestation, []agent.Certificate, time.Time) error {
	return nil
}

func TestEveryFetchIsAnEvent(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	to := id.Of[id.Agent](fresh())
	asked, err := w.RequestAgentCommand(ctx, system(), agentcommand.Requested{
		Key: "k", Kind: agentcommand.BootEntrySet, Role: agentcommand.RoleSite, NotAfter: at("2026-11-29T13:00:00Z"),
		Payload: json.RawMessage(`{"nodeId":"n","macs":["02:00:00:00:00:01"],"tokenRef":"secret:t","kernel":"k","initrd":"i","expiresAt":"2026-11-29T13:00:00Z"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := asked.State.AgentCommand
	if err := w.FetchSecret(ctx, system(), c, to, "b1", "secret:t"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("before it was handed out: %v", err)
	}
	if _, err := w.HandOutAgentCommand(ctx, system(), c, to, "b1"); err != nil {
		t.Fatal(err)
	}
	call := system()
	call.Actor.Agent = to
	for range 2 {
		if err := w.FetchSecret(ctx, call, c, to, "b1", "secret:t"); err != nil {
			t.Fatal(err)
		}
	}
	events, err := w.log.Read(ctx, agentcommand.StreamOf(c), 0)
	if err != nil || len(events) != 4 || events[3].Type != "agentcommand.secret.fetched" || events[3].Meta.Principal != to.String() {
		t.Errorf("%d events, the last %+v, %v", len(events), events[len(events)-1], err)
	}
}

func TestRetiringTurnsTheAgentAway(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.1")).State.ID
	by := w.signer(t, n)
	wf, err := w.StartWorkflow(ctx, system(), n, node.Profile{ID: "metal", Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Fail(ctx, system(), n, wf.State.Workflow.ID, fault.Timeout, "no BMC"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Abandon(ctx, system(), n, "burnt"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.OpenSession(ctx, system(), by.id, by.cert.Fingerprint, agent.RoleRamdisk, "b1", ""); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a session of a retired node's agent: %v", err)
	}
}
