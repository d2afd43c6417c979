package agentapi_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/commands"
	domainagent "github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections/agentqueue"
	"github.com/better-compute/metal/projections/agents"
)

// pollWait is how long polls stay open that something else is to end.
const pollWait = 50 * time.Second

func TestAnOrderFromRequestToSignedResult(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	polled := make(chan protocol.PollAnswer, 1)
	go func() {
		var answer protocol.PollAnswer
		_, err := a.try(t.Context(), protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: pollWait.Seconds(), Room: 1}, &answer)
		if err != nil {
			t.Error(err)
		}
		polled <- answer
	}()
	w.until("a poll waits", func() bool { return g.Waiting() == 1 })
	asked, began := w.ask(n, "wf:1:wipe#1"), time.Now()
	answer := <-polled
	if took := time.Since(began); len(answer.Orders) != 1 || took > pollWait/2 { // it does not wait for the poll's end
		t.Fatalf("%d orders after %s", len(answer.Orders), took)
	}
	o := answer.Orders[0]
	if o.ID != asked.AgentCommand.String() || o.Kind != agentcommand.DiskWipe || string(o.Payload) != `{"method":"quick"}` || o.NodeID != n.String() {
		t.Errorf("the order is %+v", o)
	}
	if code := a.call(protocol.PathAck, protocol.AckRequest{BootID: a.boot, IDs: []string{o.ID}}, &struct{}{}); code != "" || w.status(asked.AgentCommand) != agentcommand.Acked {
		t.Errorf("ack: %s, it is %s", code, w.status(asked.AgentCommand))
	}
	for range 3 {
		if code := a.call(protocol.PathProgress, protocol.ProgressRequest{BootID: a.boot, ID: o.ID, Percent: 40, Message: "disk 1"}, &struct{}{}); code != "" {
			t.Errorf("progress: %s", code)
		}
	}
	if w.status(asked.AgentCommand) != agentcommand.Running {
		t.Errorf("it is %s", w.status(asked.AgentCommand))
	}
	result := a.signed(o, `{"disks":[]}`)
	for name, want := range map[string]fault.Code{"": "", "replayed": ""} {
		if code := a.settle(result); code != want {
			t.Errorf("result %s: %s", name, code)
		}
	}
	state, version, err := w.AgentCommand(t.Context(), asked.AgentCommand)
	if err != nil || state.Status != agentcommand.Succeeded || !state.Attested || version != 5 {
		t.Errorf("%s, attested %t, version %d, %v", state.Status, state.Attested, version, err)
	}
	other := a.signed(o, `{"disks":[1]}`)
	if code := a.settle(other); code != fault.InvalidState {
		t.Errorf("another result, later: %s", code)
	}
	w.until("progress is written", func() bool {
		p, err := agents.ProgressOf(t.Context(), w.pool, asked.AgentCommand)
		return err == nil && p[o.ID].Percent == 40
	})
}

func TestForgedResults(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	thief, _ := w.ramdisk(g)
	asked := w.ask(n, "k")
	o := a.one()
	forged := a.signed(o, `{"disks":[]}`)
	forged.Result = json.RawMessage(`{"disks":["clean"]}`)
	if code := a.settle(forged); code != fault.InvalidInput {
		t.Errorf("a signature of another result: %s", code)
	}
	if code := thief.settle(thief.signed(o, `{"disks":[]}`)); code != fault.Conflict && code != fault.NotFound {
		t.Errorf("a result of another agent: %s", code)
	}
	stolen := thief.signed(o, `{"disks":[]}`)
	stolen.BootID = a.boot
	if code := thief.settle(stolen); code != fault.NotFound {
		t.Errorf("a result of another agent in the boot's name: %s", code)
	}
	with := a.signed(o, `{"disks":[]}`)
	with.Attestation = thief.signed(o, `{"disks":[]}`).Attestation
	if code := a.settle(with); code != fault.InvalidInput {
		t.Errorf("a signature by another agent: %s", code)
	}
	if w.status(asked.AgentCommand) != agentcommand.Dispatched {
		t.Errorf("it is %s", w.status(asked.AgentCommand))
	}
	if code := a.settle(a.signed(o, `{"disks":[]}`)); code != "" {
		t.Errorf("the true one: %s", code)
	}
}

func TestStolenTokens(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	n := w.machine()
	token := w.token(jointoken.Minted{Role: jointoken.RoleDiscovery, Node: n, Expect: jointoken.Expect{
		MACs: []string{"02:00:00:00:00:01"}, Serial: "S1", ProductUUID: "4c4c4544-0042-3510-8052-b4c04f564831",
	}})
	right := protocol.Claims{MACs: []string{"02:00:00:00:00:01"}, Serial: "S1", ProductUUID: "4c4c4544-0042-3510-8052-b4c04f564831"}
	thief, machine := w.agent(g, agentcommand.RoleRamdisk), w.agent(g, agentcommand.RoleRamdisk)
	other := right
	other.Serial = "S2"
	for name, claims := range map[string]protocol.Claims{"without claims": {}, "another serial": other} {
		if code := thief.tryJoin(token, claims); code != fault.Forbidden {
			t.Errorf("%s: %s", name, code)
		}
	}
	if code := machine.tryJoin(token, right); code != "" {
		t.Fatalf("the machine itself, after the thief: %s", code)
	}
	if code := machine.tryJoin(token, right); code != "" {
		t.Errorf("the same key after a lost answer: %s", code)
	}
	if code := thief.tryJoin(token, right); code != fault.Unauthenticated {
		t.Errorf("a used token: %s", code)
	}
	if code := machine.trySession(); code != "" {
		t.Errorf("session: %s", code)
	}
	if code := thief.trySession(); code != fault.Unauthenticated {
		t.Errorf("a session without a certificate: %s", code)
	}
	if strings.Contains(w.logged.String(), token) {
		t.Error("the token is in the log")
	}
}

func TestFailedJoinsAreLimited(t *testing.T) {
	w := newWorld(t)
	w.clock.stop()
	g := w.gateway(func(c *agentapi.Config) { c.FailedJoins = 3 })
	token := w.token(jointoken.Minted{Role: jointoken.RoleSite, Site: w.site, MaxUses: 2})
	a := w.agent(g, agentcommand.RoleSite)
	for i := range 3 {
		if code := a.tryJoin("jtk_guess.guess", protocol.Claims{}); code != fault.Unauthenticated {
			t.Fatalf("guess %d: %s", i, code)
		}
	}
	if code := a.tryJoin(token, protocol.Claims{}); code != fault.RateLimited {
		t.Errorf("after three guesses: %s", code)
	}
	w.clock.move(5 * time.Second)
	if code := a.tryJoin(token, protocol.Claims{}); code != "" {
		t.Errorf("five seconds later: %s", code)
	}
}

// Crashes, 2: what one boot was given is never carried out by another.
func TestBootsAreFenced(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	asked := w.ask(n, "k")
	o := a.one()
	before := a.boot
	a.boot = "the next boot"
	var answer protocol.PollAnswer
	if code := a.call(protocol.PathPoll, protocol.PollRequest{BootID: a.boot, Room: 1}, &answer); code != fault.Conflict {
		t.Errorf("a poll before the session: %s", code)
	}
	if code := a.trySession(); code != "" {
		t.Fatal(code)
	}
	if w.status(asked.AgentCommand) != agentcommand.Expired {
		t.Errorf("the order of the boot before is %s", w.status(asked.AgentCommand))
	}
	if orders := a.poll(0).Orders; len(orders) != 0 {
		t.Errorf("the next boot is given %v", orders)
	}
	old := a.signed(o, `{}`)
	old.BootID = before
	if code := a.settle(old); code != fault.InvalidState && code != fault.InvalidInput {
		t.Errorf("a result of the boot before: %s", code)
	}
	a.boot = before
	if code := a.call(protocol.PathPoll, protocol.PollRequest{BootID: before, Room: 1}, &answer); code != fault.Conflict {
		t.Errorf("a poll of the boot before: %s", code)
	}
}

// The installed OS of a machine in rescue keeps its certificate. It is given nothing of what the ramdisk beside it is asked for, and
// settles none of it, whatever it knows of the ramdisk's boot.
func TestTheInstalledOSDoesNotWorkInTheRamdisksPlace(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	given := w.ask(n, "given", unsigned)
	o := a.one()
	waits := w.ask(n, "waits", unsigned)

	os := w.agent(g, agentcommand.RoleNode)
	public, ok := os.key.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("not an Ed25519 key")
	}
	of := commands.AgentOf(n)
	issued, err := w.ca.IssueAgent(public, of, n, domainagent.RoleNode, 0)
	fatal(t, err)
	before, err := w.log.Read(t.Context(), domainagent.StreamOf(of), 0)
	fatal(t, err)
	_, err = w.log.Append(t.Context(), domainagent.StreamOf(of), event.Version(len(before)), event.Meta{Tenant: tenant.Root.String()},
		domainagent.Issued{Agent: of, Node: n, Certificate: issued.Certificate})
	fatal(t, err)
	os.current, os.boot = tls.Certificate{Certificate: [][]byte{issued.DER}, PrivateKey: os.key}, a.boot
	os.reconnect()

	for path, in := range map[string]any{
		protocol.PathPoll:     protocol.PollRequest{BootID: a.boot, Room: 4},
		protocol.PathAck:      protocol.AckRequest{BootID: a.boot, IDs: []string{o.ID}},
		protocol.PathProgress: protocol.ProgressRequest{BootID: a.boot, ID: o.ID},
		protocol.PathResult:   protocol.ResultRequest{BootID: a.boot, ID: o.ID, Status: agentcommand.Failed},
		protocol.PathSecret:   protocol.SecretRequest{BootID: a.boot, ID: o.ID, Ref: "secret:x"},
		protocol.PathClose:    protocol.CloseRequest{BootID: a.boot},
	} {
		var answer json.RawMessage
		if code := os.call(path, in, &answer); code != fault.Conflict {
			t.Errorf("%s: %q, %s", path, code, answer)
		}
	}
	if is := w.status(given.AgentCommand); is != agentcommand.Dispatched {
		t.Errorf("what the ramdisk was given is %s", is)
	}
	if is := w.status(waits.AgentCommand); is != agentcommand.Pending {
		t.Errorf("what waits for the ramdisk is %s", is)
	}
	if got := a.one(); got.ID != waits.AgentCommand.String() {
		t.Errorf("the ramdisk is given %s", got.ID)
	}
}

// unsigned has something asked for whose result need not be signed.
func unsigned(r *agentcommand.Requested) {
	r.Kind, r.Payload = agentcommand.InspectHardware, json.RawMessage(`{}`)
}

// An agent whose process was started again within a boot has lost its journal. What was in it is over, and not waited for until its
// deadline, which may be a day away.
func TestWhatAnAgentForgotIsOver(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	asked := w.ask(n, "k")
	o := a.one()
	early := make(chan fault.Code)
	go func() { // it was sent before the order was in the journal, and says nothing about it
		var answer protocol.PollAnswer
		code, err := a.try(t.Context(), protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: 50}, &answer)
		if err != nil {
			t.Error(err)
		}
		early <- code
	}()
	w.until("a poll waits", func() bool { return g.Waiting() == 1 })
	if code := a.call(protocol.PathAck, protocol.AckRequest{BootID: a.boot, IDs: []string{o.ID}}, &struct{}{}); code != "" {
		t.Fatal(code)
	}
	a.poll(0)
	if code := <-early; code != "" {
		t.Errorf("the early poll: %s", code)
	}
	if is := w.status(asked.AgentCommand); is != agentcommand.Acked {
		t.Errorf("at once it is %s", is)
	}
	w.clock.move(11 * time.Second)
	a.poll(0, o.ID)
	if is := w.status(asked.AgentCommand); is != agentcommand.Acked {
		t.Errorf("in the agent's hands it is %s", is)
	}
	if answer := a.poll(0); len(answer.Orders) > 0 {
		t.Errorf("it is given again: %v", answer.Orders)
	}
	s, _, err := w.AgentCommand(t.Context(), asked.AgentCommand)
	if err != nil || s.Status != agentcommand.Cancelled || !strings.Contains(s.Reason, "does not know of it") {
		t.Errorf("forgotten it is %s, %q (%v)", s.Status, s.Reason, err)
	}
	if code := a.settle(a.signed(o, `{}`)); code != fault.InvalidState {
		t.Errorf("a late result: %q", code)
	}
}

// Two boots of one identity at two gateways: the older's waiting poll ends when the newer opens its session.
func TestTheNewestBootWins(t *testing.T) {
	w := newWorld(t)
	first, second := w.gateway(), w.gateway()
	a, n := w.ramdisk(first)
	twin := *a
	twin.g, twin.boot = second, "the other boot"
	twin.client = nil
	twin.reconnect()
	t.Cleanup(func() { twin.client.CloseIdleConnections() })
	ended := make(chan fault.Code, 1)
	go func() {
		var answer protocol.PollAnswer
		code, err := a.try(t.Context(), protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: pollWait.Seconds(), Room: 1}, &answer)
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	w.until("the first waits", func() bool { return first.Waiting() == 1 })
	if code := twin.trySession(); code != "" {
		t.Fatal(code)
	}
	if code := <-ended; code != fault.Conflict {
		t.Errorf("the older boot's poll ends with %q", code)
	}
	w.ask(n, "k")
	if got := twin.one(); got.NodeID != n.String() {
		t.Error("the newer boot gets nothing")
	}
}

// W22: the gateway is gone after an order was handed out, with or without it having arrived.
func TestAGatewayThatRestarts(t *testing.T) {
	w := newWorld(t)
	first := w.gateway()
	a, n := w.ramdisk(first)
	arrived := w.ask(n, "arrived")
	o := a.one()
	if code := a.call(protocol.PathAck, protocol.AckRequest{BootID: a.boot, IDs: []string{o.ID}}, &struct{}{}); code != "" {
		t.Fatal(code)
	}
	lost := w.ask(n, "lost")
	a.one() // and the answer never arrives
	waiting := w.ask(n, "waiting")
	first.stop(t)
	fatal(t, w.runner.CatchUp(t.Context(), agentqueue.Name))

	a.g = w.gateway()
	a.reconnect()
	got := a.poll(5*time.Second, arrived.AgentCommand.String())
	var ids []string
	for _, o := range got.Orders {
		ids = append(ids, o.ID)
	}
	if want := []string{lost.AgentCommand.String(), waiting.AgentCommand.String()}; !slices.Equal(ids, want) || len(got.Cancel) > 0 {
		t.Errorf("after the restart: %v, want %v; cancel %v", ids, want, got.Cancel)
	}
	if code := a.settle(a.signed(o, `{}`)); code != "" {
		t.Errorf("the result that was under way: %s", code)
	}
}

func TestWhatDidNotArriveIsGivenAgain(t *testing.T) {
	w := newWorld(t)
	w.clock.stop()
	const redeliver = 3 * time.Second
	a, n := w.ramdisk(w.gateway(func(c *agentapi.Config) { c.Redeliver = redeliver }))
	w.ask(n, "k")
	first := a.one()
	if again := a.poll(0).Orders; len(again) != 0 {
		t.Error("given again at once")
	}
	w.clock.move(redeliver)
	if again := a.one(); again.ID != first.ID {
		t.Error("another order")
	}
	w.clock.move(2 * redeliver)
	if again := a.poll(600*time.Millisecond, first.ID).Orders; len(again) != 0 {
		t.Error("given again although the agent works on it")
	}
	if code := a.call(protocol.PathAck, protocol.AckRequest{BootID: a.boot, IDs: []string{first.ID}}, &struct{}{}); code != "" {
		t.Fatal(code)
	}
	w.clock.move(2 * redeliver)
	if again := a.poll(600 * time.Millisecond).Orders; len(again) != 0 {
		t.Error("given again although it was acknowledged")
	}
}

// Two gateways, two agents of a site: each order is given once.
func TestTwoGatewaysGiveEachOrderOnce(t *testing.T) {
	w := newWorld(t)
	one, two := w.siteAgent(w.gateway()), w.siteAgent(w.gateway())
	n := w.machine()
	const orders = 60
	got := make(chan string, 4*orders)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 2)
	for _, a := range []*agent{one, two} {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				var answer protocol.PollAnswer
				code, err := a.try(ctx, protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: 5, Room: 3}, &answer)
				if ctx.Err() != nil {
					return
				}
				if code != "" || err != nil {
					t.Errorf("poll: %s, %v", code, err)
					return
				}
				for _, o := range answer.Orders {
					got <- o.ID
					code, err := a.try(ctx, protocol.PathResult, protocol.ResultRequest{BootID: a.boot, ID: o.ID, Status: agentcommand.Succeeded}, &struct{}{})
					if ctx.Err() == nil && (code != "" || err != nil) {
						t.Errorf("result: %s, %v", code, err)
					}
				}
			}
		}()
	}
	for i := range orders {
		w.ask(n, "k"+string(rune('A'+i)), func(r *agentcommand.Requested) {
			r.Kind, r.Role = agentcommand.SiteHTTPProxy, agentcommand.RoleSite
			r.Payload = json.RawMessage(`{"method":"GET","url":"http://10.0.0.1/"}`)
		})
	}
	seen := map[string]int{}
	for range orders {
		select {
		case c := <-got:
			seen[c]++
		case <-time.After(patience):
			t.Fatalf("only %d orders were given", len(seen))
		}
	}
	w.until("all are over", func() bool {
		for c := range seen {
			parsed, err := id.Parse[id.AgentCommand](c)
			fatal(t, err)
			if w.status(parsed) != agentcommand.Succeeded {
				return false
			}
		}
		return true
	})
	cancel()
	<-ended
	<-ended
	if len(seen) != orders || len(got) != 0 {
		t.Errorf("%d orders, %d given twice", len(seen), len(got)+orders-len(seen))
	}
}

func TestCancelsAndDeadlines(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	asked := w.ask(n, "cancelled")
	o := a.one()
	told := make(chan protocol.PollAnswer, 1)
	go func() {
		var answer protocol.PollAnswer
		if _, err := a.try(t.Context(), protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: pollWait.Seconds(), Room: 1, Doing: []string{o.ID}}, &answer); err != nil {
			t.Error(err)
		}
		told <- answer
	}()
	w.until("a poll waits", func() bool { return g.Waiting() == 1 })
	if _, err := w.CancelAgentCommand(t.Context(), system(), asked.AgentCommand, "aborted"); err != nil {
		t.Fatal(err)
	}
	if answer := <-told; !slices.Equal(answer.Cancel, []string{o.ID}) {
		t.Errorf("told to stop %v", answer.Cancel)
	}
	if answer := a.poll(200*time.Millisecond, o.ID); !slices.Equal(answer.Cancel, []string{o.ID}) {
		t.Errorf("while it stops: %v", answer.Cancel)
	}
	if code := a.call(protocol.PathAck, protocol.AckRequest{BootID: a.boot, IDs: []string{o.ID}}, &struct{}{}); code != fault.InvalidState {
		t.Errorf("an ack after the cancel, by an agent that would begin now: %s", code)
	}
	if code := a.settle(a.signed(o, `{}`)); code != fault.InvalidState {
		t.Errorf("a result after the cancel: %s", code)
	}
	w.clock.stop()
	short := w.ask(n, "short", func(r *agentcommand.Requested) { r.NotAfter = w.clock.now().Add(time.Second) })
	if got := a.one(); got.ID != short.AgentCommand.String() {
		t.Fatal("another order")
	}
	w.clock.move(2 * time.Second)
	w.until("the deadline is noticed", func() bool { return w.status(short.AgentCommand) == agentcommand.Expired })
}

func TestSecretsNeedALiveOrder(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, other := w.siteAgent(g), w.siteAgent(g)
	n := w.machine()
	ref, err := w.secrets.Put(t.Context(), system().Command, []byte("hunter2"))
	fatal(t, err)
	elsewhere, err := w.secrets.Put(t.Context(), system().Command, []byte("hunter3"))
	fatal(t, err)
	asked := w.ask(n, "k", func(r *agentcommand.Requested) {
		r.Kind, r.Role = agentcommand.DriverInvoke, agentcommand.RoleSite
		r.Payload = json.RawMessage(`{"driver":"redfish","concern":"power","operation":"get","bmc":{"address":"https://10.0.0.1","tls":{},"credentialsRef":"` + string(ref) + `"}}`)
	})
	fetch := func(a *agent, ref string) (string, fault.Code) {
		var answer protocol.SecretAnswer
		code := a.call(protocol.PathSecret, protocol.SecretRequest{BootID: a.boot, ID: asked.AgentCommand.String(), Ref: ref}, &answer)
		return string(answer.Value), code
	}
	if _, code := fetch(a, string(ref)); code != fault.NotFound {
		t.Errorf("before it was handed out: %s", code)
	}
	o := a.one()
	if value, code := fetch(a, string(ref)); value != "hunter2" || code != "" {
		t.Errorf("the agent that has it: %s", code)
	}
	if _, code := fetch(other, string(ref)); code != fault.NotFound {
		t.Errorf("another agent: %s", code)
	}
	if _, code := fetch(a, string(elsewhere)); code != fault.NotFound {
		t.Errorf("a value the order does not refer to: %s", code)
	}
	if code := a.settle(protocol.ResultRequest{BootID: a.boot, ID: o.ID, Status: agentcommand.Failed, Code: "TIMEOUT", Reason: "no BMC"}); code != "" {
		t.Fatal(code)
	}
	if _, code := fetch(a, string(ref)); code != fault.InvalidState {
		t.Errorf("once it is over: %s", code)
	}
	events, err := w.log.Read(t.Context(), agentcommand.StreamOf(asked.AgentCommand), 0)
	fatal(t, err)
	fetched := 0
	for _, e := range events {
		if e.Type == "agentcommand.secret.fetched" && e.Meta.Principal == a.answer.AgentID {
			fetched++
		}
		if strings.Contains(string(e.Data)+string(e.RawMeta), "hunter") {
			t.Errorf("%s holds the value", e.Type)
		}
	}
	if fetched != 1 || strings.Contains(w.logged.String(), "hunter") {
		t.Errorf("%d fetches are told", fetched)
	}
}

// W13: signs of life touch no stream, whatever they are many.
func TestHeartbeatsAreNoEvents(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	w.ask(n, "k")
	o := a.one()
	if code := a.call(protocol.PathProgress, protocol.ProgressRequest{BootID: a.boot, ID: o.ID, Percent: 0}, &struct{}{}); code != "" {
		t.Fatal(code)
	}
	before, err := w.log.Head(t.Context())
	fatal(t, err)
	for i := range 1000 {
		if i%2 == 0 {
			a.poll(0, o.ID)
			continue
		}
		if code := a.call(protocol.PathProgress, protocol.ProgressRequest{BootID: a.boot, ID: o.ID, Percent: float64(i) / 10}, &struct{}{}); code != "" {
			t.Fatal(code)
		}
	}
	if code := a.trySession(); code != "" {
		t.Fatal(code)
	}
	after, err := w.log.Head(t.Context())
	fatal(t, err)
	if before != after {
		t.Errorf("a thousand signs of life appended %d events", after-before)
	}
	who := w.agentID(a)
	w.until("presence is written", func() bool {
		boot, _, is, err := agents.Connected(t.Context(), w.pool, who)
		return err == nil && is && boot == a.boot
	})
}

func (w *world) agentID(a *agent) id.Agent {
	who, err := id.Parse[id.Agent](a.answer.AgentID)
	fatal(w.t, err)
	return who
}

func TestCertificatesThatDoNotWork(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, n := w.ramdisk(g)
	first := a.current
	_, key, err := ed25519.GenerateKey(rand.Reader)
	fatal(t, err)
	var renewed protocol.Certificate
	if code := a.call(protocol.PathRenew, protocol.RenewRequest{CSR: a.csr(key)}, &renewed); code != "" {
		t.Fatal(code)
	}
	a.poll(0) // the one before is good until the new one is used
	a.current = tls.Certificate{Certificate: [][]byte{renewed.Certificate}, PrivateKey: key}
	a.reconnect()
	a.key = key
	a.poll(0)
	var answer protocol.PollAnswer
	as := func(c tls.Certificate) fault.Code {
		a.current = c
		a.reconnect()
		return a.call(protocol.PathPoll, protocol.PollRequest{BootID: a.boot, Room: 1}, &answer)
	}
	second := a.current
	w.until("the one before no longer works", func() bool { return as(first) == fault.Unauthenticated })
	if code := as(second); code != "" {
		t.Errorf("the renewed one: %s", code)
	}

	w.ask(n, "k")
	o := a.one()
	if code := a.settle(a.signed(o, `{}`)); code != "" {
		t.Errorf("a result signed with the renewed one: %s", code)
	}
	w.clock.move(48 * time.Hour)
	if code := as(second); code != fault.Unauthenticated {
		t.Errorf("an expired one: %s", code)
	}
	a.current = second
	a.reconnect()
	_, key, err = ed25519.GenerateKey(rand.Reader)
	fatal(t, err)
	if code := a.call(protocol.PathRenew, protocol.RenewRequest{CSR: a.csr(key)}, &renewed); code != "" {
		t.Errorf("renewing an expired one: %s", code)
	}
	if code := as(tls.Certificate{Certificate: [][]byte{renewed.Certificate}, PrivateKey: key}); code != "" {
		t.Errorf("what it was renewed to: %s", code)
	}
	second = a.current
	if _, err := w.RevokeAgent(t.Context(), system(), w.agentID(a), "stolen"); err != nil {
		t.Fatal(err)
	}
	w.until("the revocation is noticed", func() bool { return as(second) == fault.Unauthenticated })
	if code := a.tryJoin(w.token(jointoken.Minted{Role: jointoken.RoleDiscovery, Node: n}), protocol.Claims{}); code != "" {
		t.Errorf("joining again: %s", code)
	}
	if code := a.trySession(); code != "" {
		t.Errorf("a session after joining again: %s", code)
	}
}

func TestMalformedRequests(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, _ := w.ramdisk(g)
	post := func(path, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+path, strings.NewReader(body))
		fatal(t, err)
		response, err := a.client.Do(r)
		fatal(t, err)
		fatal(t, response.Body.Close())
		if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK && kind != "application/problem+json" {
			t.Errorf("%s with %.20q answers %s", path, body, kind)
		}
		return response.StatusCode
	}
	for _, test := range []struct {
		path, body string
		want       int
	}{
		{protocol.PathPoll, ``, 400},
		{protocol.PathPoll, `[]`, 400},
		{protocol.PathPoll, `{"room":"many"}`, 400},
		{protocol.PathPoll, `{"bootId":"` + strings.Repeat("x", 300<<10) + `"}`, 413},
		{protocol.PathPoll, `{"bootId":"other"}`, 409},
		{protocol.PathAck, `{"bootId":"` + a.boot + `","ids":["x"]}`, 400},
		{protocol.PathProgress, `{"bootId":"` + a.boot + `","id":"x"}`, 400},
		{protocol.PathResult, `{"bootId":"` + a.boot + `","id":"cmd_01h455vb4pex5vsknk084sn02q","status":"succeeded"}`, 404},
		{protocol.PathSecret, `{"bootId":"` + a.boot + `","id":"cmd_01h455vb4pex5vsknk084sn02q","ref":"secret:x"}`, 404},
		{protocol.PathSession, `{"bootId":"","role":"ramdisk"}`, 400},
		{protocol.PathSession, `{"bootId":"b","role":"node"}`, 403},
		{protocol.PathJoin, `{"token":"x","role":"ramdisk","csr":"AAAA"}`, 400},
		{protocol.PathRenew, `{"csr":"AAAA"}`, 400},
		{"/agent/v1/nothing", `{}`, 404},
	} {
		if got := post(test.path, test.body); got != test.want {
			t.Errorf("%s with %.60q: %d, want %d", test.path, test.body, got, test.want)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+protocol.PathPoll, nil)
	fatal(t, err)
	response, err := a.client.Do(r)
	fatal(t, err)
	fatal(t, response.Body.Close())
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", response.StatusCode)
	}
}

func TestClosingAnswersPolls(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a, _ := w.ramdisk(g)
	ended := make(chan error, 1)
	go func() {
		var answer protocol.PollAnswer
		_, err := a.try(t.Context(), protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: pollWait.Seconds(), Room: 1}, &answer)
		ended <- err
	}()
	w.until("a poll waits", func() bool { return g.Waiting() == 1 })
	g.stop(t) // which fails where a request goes on for longer than it waits, and that is less than pollWait
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLeavingOnPurpose(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	a := w.siteAgent(g)
	w.until("it is connected", func() bool {
		_, _, is, err := agents.Connected(t.Context(), w.pool, w.agentID(a))
		return err == nil && is
	})
	if code := a.call(protocol.PathClose, protocol.CloseRequest{BootID: a.boot, Reason: "shutdown"}, &struct{}{}); code != "" {
		t.Fatal(code)
	}
	w.until("it is gone", func() bool {
		_, _, is, err := agents.Connected(t.Context(), w.pool, w.agentID(a))
		return err == nil && !is
	})
}
