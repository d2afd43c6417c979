package httpapi

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections/agents"
)

// What the process managers and the gateway do in a whole control plane, a test does here with the same verbs.

func system() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}

// runs starts a machine's workflow, whose first step is in flight then, and waits until the read models show it.
func (w *world) runs(n contract.Node, profile string) id.Workflow {
	w.t.Helper()
	ctx := context.Background()
	started := must(w.service.StartWorkflow(ctx, system(), w.node(n), node.Profile{ID: profile, Version: 1}))(w.t)
	wf := started.State.Workflow.ID
	must(w.service.CreateWorkflow(ctx, system(), started.State, "provision"))(w.t)
	must(w.service.AdvanceWorkflow(ctx, system(), wf, workflow.Tick{Now: w.now()}))(w.t)
	w.caughtUp()
	return wf
}

// commissions brings a machine from its enrollment into the workflow that wipes it.
func (w *world) commissions(n contract.Node) id.Workflow {
	w.t.Helper()
	ctx := context.Background()
	for _, profile := range []string{"metal-enroll", "metal-inspect"} {
		started := must(w.service.StartWorkflow(ctx, system(), w.node(n), node.Profile{ID: profile, Version: 1}))(w.t)
		must(w.service.Complete(ctx, system(), w.node(n), started.State.Workflow.ID, ""))(w.t)
	}
	return w.runs(n, "metal-commission")
}

func (w *world) node(n contract.Node) id.Node { return must(id.Parse[id.Node](n.ID))(w.t) }

// caughtUp waits until every read model is level with the log.
func (w *world) caughtUp() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	head := must(w.store.Head(ctx))(w.t)
	for _, name := range w.runner.Names() {
		if err := w.runner.Wait(ctx, name, head); err != nil {
			w.t.Fatal(err)
		}
	}
}

// fails settles the steps of a workflow with an error until it has failed.
func (w *world) fails(wf id.Workflow) {
	w.t.Helper()
	ctx := context.Background()
	for range 100 {
		state, _, err := w.service.Workflow(ctx, wf)
		if err != nil {
			w.t.Fatal(err)
		}
		if state.Status == workflow.Failed {
			must(w.service.Fail(ctx, system(), state.Node, wf, "DRIVER_ERROR", "no answer"))(w.t)
			w.caughtUp()
			return
		}
		tick := workflow.Tick{Now: w.now()}
		if step := state.InFlight(); step != nil {
			must(w.service.SettleWorkflow(ctx, system(), wf, workflow.Settle{
				Tick: tick, Step: step.ID, Attempt: step.Attempt, Error: &workflow.Failure{Code: "DRIVER_ERROR", Message: "no answer"},
			}))(w.t)
		}
		w.ahead.Add(int64(time.Minute))
		must(w.service.AdvanceWorkflow(ctx, system(), wf, workflow.Tick{Now: w.now()}))(w.t)
	}
	w.t.Fatal("it does not fail")
}

// joined is an agent in the ramdisk of a machine.
type joined struct {
	id          id.Agent
	key         ed25519.PrivateKey
	certificate string
	boot        string
}

// ramdisk lets an agent join with a token and opens its session.
func (w *world) ramdisk(n contract.Node, token string) joined {
	w.t.Helper()
	ctx := context.Background()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	j := joined{key: private, certificate: hex.EncodeToString(public), boot: uuid.NewString()}
	state := must(w.service.Join(ctx, system(), commands.JoinFacts{
		Token: token, Role: agent.RoleRamdisk, Name: "ramdisk", PublicKey: public,
		Issue: func(id.Agent, id.Node, agent.Role) (agent.Certificate, error) {
			return agent.Certificate{
				Fingerprint: j.certificate, PublicKey: public, Serial: "01", NotBefore: w.now().Add(-time.Minute), NotAfter: w.now().Add(time.Hour),
			}, nil
		},
	}))(w.t)
	j.id = state.ID
	must(w.service.OpenSession(ctx, system(), j.id, j.certificate, agent.RoleRamdisk, j.boot, "test"))(w.t)
	w.heard(j, 0, "")
	w.caughtUp()
	return j
}

// heard is a sign of life.
func (w *world) heard(j joined, ago time.Duration, closed string, doing ...string) {
	w.t.Helper()
	err := postgres.NewPresence(w.pool).Write(context.Background(), []agents.Contact{{
		Agent: j.id, BootID: j.boot, Role: agent.RoleRamdisk, Ago: ago, Closed: closed, Doing: doing,
	}}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) discovery(n contract.Node) contract.JoinToken {
	w.t.Helper()
	return into[contract.JoinToken](w.post("/v1/join-tokens", contract.NewJoinToken{Role: "discovery", Node: n.ID}).want(201))
}

// wipes has the machine's agent wipe its disks, signed with its key, and the result kept on the machine.
func (w *world) wipes(n contract.Node, wf id.Workflow, by joined, disks ...node.WipedDisk) id.AgentCommand {
	w.t.Helper()
	ctx, of := context.Background(), w.node(n)
	at := must(w.service.RequestAgentCommand(ctx, system(), agentcommand.Requested{
		Key: "wf:" + wf.String() + ":wipe#1:main", Kind: agentcommand.DiskWipe, Role: agentcommand.RoleRamdisk, Node: of,
		Tenant: must(id.Parse[id.Tenant](n.Tenant))(w.t), Site: must(id.Parse[id.Site](n.Site))(w.t), Workflow: wf, Step: "wipe", Attempt: 1,
		NotAfter: w.now().Add(time.Hour), Payload: json.RawMessage(`{"method":"quick"}`),
	}))(w.t).State
	must(w.service.HandOutAgentCommand(ctx, system(), at.AgentCommand, by.id, by.boot))(w.t)
	result := must(json.Marshal(map[string]any{"disks": disks}))(w.t)
	signed := agentcommand.Attestation{Certificate: by.certificate, At: w.now().UTC()}
	signed.Signature = ed25519.Sign(by.key, agentcommand.SigningInput(at.AgentCommand, at.Kind, of, 1, by.boot, at.Payload, result, signed.At))
	done := must(w.service.SettleAgentCommand(ctx, system(), at.AgentCommand, agentcommand.Settle{
		Agent: by.id, BootID: by.boot, Status: agentcommand.Succeeded, Result: result, Attestation: &signed,
	}))(w.t)
	if !done.State.Attested {
		w.t.Fatal("the result is not attested")
	}
	must(w.service.AttestWipe(ctx, system(), of, node.Wipe{
		Workflow: wf, AgentCommand: at.AgentCommand, BootID: by.boot, Certificate: by.certificate, Signed: true, Method: node.WipeQuick,
		Disks: disks,
	}))(w.t)
	w.caughtUp()
	return at.AgentCommand
}

// disk is one that was emptied and read back.
func disk(n int) node.WipedDisk {
	return node.WipedDisk{
		Disk:   node.Disk{Path: fmt.Sprintf("/dev/sd%c", 'a'+n), Model: "QEMU", Serial: fmt.Sprintf("S%d", n), Bytes: 1 << 30},
		Method: node.WipeQuick, By: node.ByDiscard, ReadBack: true,
	}
}

func (w *world) inventory(n contract.Node, disks ...node.WipedDisk) {
	w.t.Helper()
	var h node.Hardware
	for _, d := range disks {
		h.Disks = append(h.Disks, d.Disk)
	}
	must(w.service.RecordHardware(context.Background(), system(), w.node(n), node.InBand, h))(w.t)
}

func TestWipeIsProvenToAuditors(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	path := "/v1/nodes/" + n.ID + "/attestation"
	w.get(path, as(e.token)).problem(404, "NOT_FOUND")
	wf := w.commissions(n)
	j := w.ramdisk(n, w.discovery(n).Token)
	w.inventory(n, disk(0), disk(1))
	order := w.wipes(n, wf, j, disk(0))
	got := into[contract.Attestation](w.get(path, as(e.token)).want(200))
	if !got.Verified || got.Problem != "" || !got.Stands || got.Complete {
		t.Fatalf("one disk of two: %+v", got)
	}
	if got.AgentCommand != order.String() || got.Agent != j.id.String() || got.Workflow != wf.String() || got.BootID != j.boot ||
		len(got.Disks) != 1 || got.Disks[0].Serial != "S0" || got.Disks[0].By != node.ByDiscard || !got.Disks[0].ReadBack || got.NotAfter == nil {
		t.Fatalf("%+v", got)
	}
	if !ed25519.Verify(got.PublicKey, got.Signed, got.Signature) {
		t.Fatal("an auditor can't check it")
	}
	w.get(path + "?minPosition=9999999").issues("query.minPosition")
	w.get("/v1/nodes/x/attestation").issues("path.id")
	_, blind := w.caller(e.tenant, "tenant", e.tenant, "compute:images:read")
	w.get(path, as(blind)).problem(404, "NOT_FOUND")

	// Its certificate was revoked since: what it had proven stays proven. Its row was changed: it is not.
	must(w.service.RevokeAgent(context.Background(), system(), j.id, "retired"))(t)
	w.caughtUp()
	if again := into[contract.Attestation](w.get(path).want(200)); !again.Verified {
		t.Fatalf("after the certificate was revoked: %+v", again)
	}
	if _, err := w.pool.Exec(t.Context(), "UPDATE node_certs SET public_key = repeat('00', 32)"); err != nil {
		t.Fatal(err)
	}
	if forged := into[contract.Attestation](w.get(path).want(200)); forged.Verified || forged.Problem == "" {
		t.Fatalf("with another key: %+v", forged)
	}
}

// Once the disks are handed out, an earlier wipe proves nothing about them.
func TestWipeStandsUntilADeploy(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	wf := w.commissions(n)
	j := w.ramdisk(n, w.discovery(n).Token)
	w.inventory(n, disk(0))
	w.wipes(n, wf, j, disk(0))
	path := "/v1/nodes/" + n.ID
	if got := into[contract.Attestation](w.get(path + "/attestation").want(200)); !got.Verified || !got.Complete {
		t.Fatalf("%+v", got)
	}
	must(w.service.Complete(context.Background(), system(), w.node(n), wf, ""))(t)
	w.post(path+"/deploy", contract.Deploy{Profile: "image-host", Version: 1}).want(200)
	if got := into[contract.Attestation](w.get(path + "/attestation").want(200)); !got.Verified || got.Stands || got.Complete {
		t.Fatalf("%+v", got)
	}
}

// A record that says other disks than the agent signed for is found out.
func TestForgedWipeIsFoundOut(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	wf := w.commissions(n)
	j := w.ramdisk(n, w.discovery(n).Token)
	order := w.wipes(n, wf, j, disk(0))
	must(w.service.AttestWipe(context.Background(), system(), w.node(n), node.Wipe{
		Workflow: wf, AgentCommand: order, BootID: j.boot, Certificate: j.certificate, Signed: true, Method: node.WipeQuick,
		Disks: []node.WipedDisk{disk(0), disk(1)},
	}))(t)
	got := into[contract.Attestation](w.get("/v1/nodes/" + n.ID + "/attestation").want(200))
	if got.Verified || got.Problem != "the disks on record are not those of the signed result" {
		t.Fatalf("%+v", got)
	}
}

func TestConnectivityIsOfNow(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n, silent := w.enroll(e.pool), w.enroll(e.pool)
	shows := func(want, role string) {
		t.Helper()
		one := into[contract.Node](w.get("/v1/nodes/" + n.ID).want(200))
		listed := into[contract.List[contract.Node]](w.get("/v1/nodes?pool=" + e.pool).want(200)).Items
		done := into[contract.Node](w.post("/v1/nodes/"+n.ID+"/uncordon", nil).want(200))
		for _, got := range []contract.Node{one, listed[1], done} {
			if got.Connectivity != want || role == "" != (got.Agent == nil) || role != "" && got.Agent.Role != role {
				t.Fatalf("%s, %+v; want %s as %q", got.Connectivity, got.Agent, want, role)
			}
		}
		if listed[0].ID != silent.ID || listed[0].Connectivity != "unknown" || listed[0].Agent != nil {
			t.Fatalf("%+v", listed[0])
		}
	}
	shows("unknown", "")
	w.runs(n, "metal-enroll")
	j := w.ramdisk(n, w.discovery(n).Token)
	shows("connected", "ramdisk")
	w.heard(j, 0, "powered off")
	shows("disconnected", "ramdisk")
	w.heard(j, 0, "")
	shows("connected", "ramdisk")
	if got := string(w.get("/v1/nodes?fields=connectivity&name=" + n.Name).want(200).body); got != `{"items":[{"connectivity":"connected"}]}`+"\n" {
		t.Fatalf("%s", got)
	}
	for _, ago := range []string{
		"UPDATE agent_presence SET last_contact = now() - interval '2 minutes'", "UPDATE agents SET session_at = now() - interval '3 minutes'",
	} {
		if _, err := w.pool.Exec(t.Context(), ago); err != nil {
			t.Fatal(err)
		}
	}
	shows("disconnected", "ramdisk")
	must(w.service.RevokeAgent(context.Background(), system(), j.id, "gone"))(t)
	w.caughtUp()
	shows("unknown", "")
	past := into[contract.Node](w.get("/v1/nodes/" + n.ID + "?at=" + decimal(n.Position)).want(200))
	if past.Connectivity != "unknown" {
		t.Fatalf("the past knows of now: %+v", past)
	}
}

// A verb that was applied is not answered with an error because nothing is known of the machine's agent.
func TestAVerbIsAnsweredWithoutPresence(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	if _, err := w.pool.Exec(t.Context(), "ALTER TABLE agent_presence RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	got := into[contract.Node](w.post("/v1/nodes/"+n.ID+"/cordon", contract.Reason{Reason: "r"}).want(200))
	if !got.Cordoned || got.Connectivity != "unknown" || got.Agent != nil {
		t.Fatalf("%+v", got)
	}
	w.get("/v1/nodes/"+n.ID).problem(503, "UNAVAILABLE")
}

// A machine may be called as its fields are.
func TestConnectivityIsPutInItsOwnPlace(t *testing.T) {
	w := start(t)
	in := machine(w.estate("acme").pool)
	in.Labels = map[string]string{"connectivity": "unknown", "nodeId": "x"}
	n := into[contract.Node](w.post("/v1/nodes", in).want(201))
	w.runs(n, "metal-enroll")
	w.ramdisk(n, w.discovery(n).Token)
	got := into[contract.Node](w.get("/v1/nodes/" + n.ID).want(200))
	if got.Connectivity != "connected" || got.Labels["connectivity"] != "unknown" || got.ID != n.ID {
		t.Fatalf("%+v", got)
	}
}
