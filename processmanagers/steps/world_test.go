package steps_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/steps"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

const (
	theToken  = "the-join-token"
	secretRef = "secret:00000000-0000-0000-0000-0000000000aa"
)

// errCrash is what a worker that is killed never sees.
var errCrash = errors.New("killed")

// world is a machine with its site, as the ports of steps show it. Agent commands settle when answer says so.
type world struct {
	t       *testing.T
	now     time.Time
	node    node.State
	profile profile.Document
	flow    workflow.State
	config  steps.Config
	session steps.Session
	siteUp  bool
	// siteAgent is the one that takes the orders of the site, and is heard of.
	siteAgent id.Agent
	noPorts   bool

	// answer carries an order out; empty: it goes on.
	answer func(agentcommand.State) (agentcommand.Status, any)
	// tick lets the machine go on when time has passed.
	tick func()
	// unsigned results are not attested.
	unsigned bool
	// crashAt kills the worker right after it has sent its nth agent command.
	crashAt int

	commands map[string]*agentcommand.State
	keys     []string // in the order of their first request
	sent     int
	events   []string // of the node's stream
	minted   []steps.JoinToken
	secrets  map[string]string
	until    map[string]time.Time
	images   map[string]steps.Image
	revoked  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, now: start, siteUp: true, siteAgent: id.Of[id.Agent](uuid.UUID{15: 8}), commands: map[string]*agentcommand.State{}, secrets: map[string]string{}, until: map[string]time.Time{},
		images: map[string]steps.Image{},
		config: steps.Config{
			GatewayURL: "https://gw.example:8443", CASHA256: strings.Repeat("ca", 32), Kernel: "vmlinuz", Initrd: "initrd.img",
			AgentURL: "https://downloads.example/bcd", AgentSHA: strings.Repeat("ab", 32),
		},
		node: node.State{
			ID: id.Of[id.Node](uuid.UUID{15: 1}), Tenant: id.Of[id.Tenant](uuid.UUID{15: 2}), Site: id.Of[id.Site](uuid.UUID{15: 3}),
			Pool: id.Of[id.Pool](uuid.UUID{15: 4}), MACs: []string{"b8:ce:f6:00:00:01"}, Provision: node.Commissioning,
			BMC: &node.BMC{
				Driver: "redfish", Address: "https://10.0.0.10", Credentials: secretRef,
				TLS: node.TLSPolicy{Mode: node.TLSPinOnFirstUse},
			},
		},
	}
	w.flow.Workflow = id.Of[id.Workflow](uuid.UUID{15: 5})
	w.node.Workflow = &node.Workflow{ID: w.flow.Workflow, Run: 1}
	w.answer = w.agent
	return w
}

// agent does whatever it is asked, as a healthy machine would.
func (w *world) agent(s agentcommand.State) (agentcommand.Status, any) {
	switch s.Kind {
	case agentcommand.DriverInvoke:
		return agentcommand.Succeeded, w.driver(s)
	case agentcommand.BootEntrySet, agentcommand.BootEntryClear:
		return agentcommand.Succeeded, nil
	}
	w.t.Fatalf("nobody expected %s", s.Kind)
	return "", nil
}

func (w *world) driver(s agentcommand.State) agentcommand.Invoked {
	var ask agentcommand.Invoke
	w.decode(s.Payload, &ask)
	told := agentcommand.Invoked{Fingerprint: strings.Repeat("f1", 32)}
	switch ask.Concern + "." + ask.Operation {
	case "power.setPower":
		var with struct{ Action node.PowerAction }
		w.decode(ask.With, &with)
		power := node.PowerOn
		if with.Action == node.ActionOff || with.Action == node.ActionGraceful {
			power = node.PowerOff
		}
		told.Result = raw(map[string]any{"power": power, "changed": true})
	case "management.setBootDevice":
		told.Result = ask.With
	default:
		told.Result = raw(map[string]any{})
	}
	return told
}

func (w *world) decode(text json.RawMessage, into any) {
	w.t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
}

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// begin puts a step into the workflow, running.
func (w *world) begin(action, with string, timeout time.Duration) {
	step, known := shipped(w.t).Step(action)
	if !known {
		w.t.Fatalf("there is no step %s", action)
	}
	if timeout == 0 {
		timeout = step.Timeout
	}
	spec := workflow.StepSpec{
		ID: fmt.Sprintf("%s-%d", strings.ReplaceAll(action, ".", "-"), len(w.flow.Steps)), Action: action, Phase: workflow.Main, Timeout: timeout,
		RunsOn: workflow.Computer(step.RunsOn), Command: step.Command, Sends: step.Sends, With: json.RawMessage(with),
	}
	w.flow.Steps = append(w.flow.Steps, workflow.Step{
		StepSpec: spec, State: workflow.StepRunning, Started: true, Attempt: 1, StartedAt: w.now, Deadline: w.now.Add(timeout),
	})
}

func (w *world) current() *workflow.Step { return &w.flow.Steps[len(w.flow.Steps)-1] }

// pass runs the newest step once, as the engine does.
func (w *world) pass() (any, error) { return w.passOf(len(w.flow.Steps) - 1) }

// passOf runs a step once.
func (w *world) passOf(i int) (any, error) {
	ctx, at := w.t.Context(), &w.flow.Steps[i]
	step, _ := shipped(w.t).Step(at.Action)
	c := &steps.Context{
		Workflow: w.flow, Step: *at, Key: w.flow.Key(*at), Deadline: at.Deadline, Now: w.now, Node: w.node, Profile: w.profile,
	}
	if !w.noPorts {
		c.Ports = steps.Ports{Commands: w, Lookout: w, Tokens: w, Secrets: secrets{w}, Images: w, Agents: w, Nodes: w, Config: w.config}
	}
	if step.Run != nil {
		return step.Run(ctx, c)
	}
	c.Step.Sends = []string{step.Command}
	order := steps.Order{
		Kind: agentcommand.KindName(step.Command), Role: agentcommand.Role(step.RunsOn), Make: makeOf(ctx, c, step),
	}
	if len(at.With) > 0 {
		order.Payload = at.With
	}
	done, err := c.AwaitCommand(ctx, order)
	if err != nil || step.Settled == nil {
		return done.Result, err
	}
	return step.Settled(ctx, c, done)
}

func makeOf(ctx context.Context, c *steps.Context, step steps.Step) func() (any, error) {
	if step.Payload == nil {
		return nil
	}
	return func() (any, error) { return step.Payload(ctx, c) }
}

// run runs a step to its end: the agents settle what is out whenever it waits, time passes, and a killed worker is followed
// by another.
func (w *world) run(action, with string) (json.RawMessage, error) {
	w.t.Helper()
	w.begin(action, with, 0)
	return w.finish()
}

func (w *world) finish() (json.RawMessage, error) {
	w.t.Helper()
	for range 5000 {
		result, err := w.pass()
		pause, waits := steps.IsNotReady(err)
		switch {
		case errors.Is(err, errCrash):
			continue
		case waits && w.now.Add(pause).After(w.current().Deadline):
			return nil, fault.New(fault.Timeout, "the deadline passed")
		case waits:
			w.settle()
			w.now = w.now.Add(pause)
			if w.tick != nil {
				w.tick()
			}
			continue
		}
		at := w.current()
		at.State, at.SettledAt = workflow.StepFailed, w.now
		if err != nil {
			return nil, err
		}
		at.State, at.Result = workflow.StepSucceeded, raw(result)
		if strings.Contains(string(at.Result), theToken) {
			w.t.Fatalf("%s tells the token: %s", at.Action, at.Result)
		}
		return at.Result, nil
	}
	w.t.Fatalf("%s never ends", w.current().Action)
	return nil, nil
}

// settle has the agents do what they were asked.
func (w *world) settle() {
	for _, key := range w.keys {
		s := w.commands[key]
		if s.Status.Settled() {
			continue
		}
		status, result := w.answer(*s)
		if status == "" {
			continue
		}
		s.Status, s.BootID = status, w.session.BootID
		if s.Role == agentcommand.RoleSite && id.IsZero(s.Agent) {
			s.Agent = w.siteAgent
		}
		if result != nil {
			s.Result = raw(result)
		}
		if status == agentcommand.Succeeded && !w.unsigned {
			s.Attested, s.Attestation = true, &agentcommand.Attestation{Certificate: "cert"}
		}
	}
}

// names are the agent commands that were sent, without what their keys have alike.
func (w *world) names() (names []string) {
	for _, key := range w.keys {
		s := w.commands[key]
		name := string(s.Kind)
		if s.Kind == agentcommand.DriverInvoke {
			var ask agentcommand.Invoke
			w.decode(s.Payload, &ask)
			name = ask.Concern + "." + ask.Operation
		}
		names = append(names, name)
	}
	return names
}

func (w *world) payload(n int, into any) {
	w.t.Helper()
	w.decode(w.commands[w.keys[n]].Payload, into)
}

// Find implements steps.AgentCommands.
func (w *world) Find(_ context.Context, key string) (agentcommand.State, error) {
	if s := w.commands[key]; s != nil {
		return *s, nil
	}
	return agentcommand.State{}, nil
}

// Request implements steps.AgentCommands as the aggregate does.
func (w *world) Request(_ context.Context, r agentcommand.Requested) (agentcommand.State, error) {
	if strings.Contains(string(r.Payload), theToken) {
		w.t.Fatalf("a token travels in the open: %s", r.Payload)
	}
	kind, known := agentcommand.Find(agentcommand.Kinds, r.Kind)
	if !known || !slices.Contains(kind.RunsOn, r.Role) {
		w.t.Fatalf("%s on %s", r.Kind, r.Role)
	}
	payload := kind.Payload()
	w.decode(r.Payload, payload)
	if wrong := payload.Check(); len(wrong) > 0 {
		return agentcommand.State{}, fault.Invalid(wrong...)
	}
	now := agentcommand.State{}
	if s := w.commands[r.Key]; s != nil {
		now = *s
	}
	events, err := agentcommand.Decide(now, agentcommand.Request{Facts: r})
	if err != nil {
		return now, err
	}
	if len(events) == 0 {
		return now, nil
	}
	now = agentcommand.Decider.Fold(now, events...)
	w.commands[r.Key] = &now
	w.keys = append(w.keys, r.Key)
	if at := w.current(); shippedStep(w.t, at.Action).AwaitsBoot && at.Before == nil {
		at.Before = &workflow.Boot{BootID: w.session.BootID, Role: string(w.session.Role)}
	}
	if w.sent++; w.sent == w.crashAt {
		return agentcommand.State{}, errCrash
	}
	return now, nil
}

// Look implements steps.Lookout: it is not one that a worker dies at.
func (w *world) Look(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error) {
	w.sent--
	return w.Request(ctx, r)
}

// End implements steps.Lookout.
func (w *world) End(_ context.Context, c id.AgentCommand, reason string) error {
	for _, s := range w.commands {
		if s.AgentCommand == c && !s.Status.Settled() {
			s.Status, s.Reason = agentcommand.Cancelled, reason
		}
	}
	return nil
}

func shippedStep(t *testing.T, action string) steps.Step {
	step, _ := shipped(t).Step(action)
	return step
}

// Mint implements steps.Tokens.
func (w *world) Mint(_ context.Context, t steps.JoinToken) (id.JoinToken, string, error) {
	i := slices.IndexFunc(w.minted, func(m steps.JoinToken) bool { return m.Key == t.Key })
	if i < 0 {
		w.minted = append(w.minted, t)
		i = len(w.minted) - 1
	}
	return id.Of[id.JoinToken](uuid.UUID{15: byte(i + 1)}), fmt.Sprintf("%s-%d", theToken, i+1), nil
}

// secrets keeps values in the world.
type secrets struct{ *world }

// Put implements steps.Secrets.
func (s secrets) Put(_ context.Context, key string, value []byte, until time.Time) (node.SecretRef, error) {
	ref := "secret:" + uuid.NewSHA1(uuid.Nil, []byte(key)).String()
	s.secrets[ref], s.until[ref] = string(value), until
	return node.SecretRef(ref), nil
}

// Resolve implements steps.Images.
func (w *world) Resolve(_ context.Context, _ id.Tenant, ref string) (steps.Image, error) {
	image, known := w.images[ref]
	if !known {
		return image, fault.New(fault.NotFound, "there is no image %s", ref)
	}
	return image, nil
}

// OfNode implements steps.Agents.
func (w *world) OfNode(context.Context, id.Node) (steps.Session, error) { return w.session, nil }

// SiteAgents implements steps.Agents.
func (w *world) SiteAgents(context.Context, id.Site) ([]id.Agent, error) {
	if !w.siteUp {
		return nil, nil
	}
	return []id.Agent{w.siteAgent}, nil
}

// SiteBoots implements steps.Agents.
func (w *world) SiteBoots(context.Context, id.Site) (bool, error) { return w.siteUp, nil }

// Down implements steps.Agents.
func (w *world) Down(_ context.Context, _ id.Node, ended steps.Session) error {
	if w.session.BootID == ended.BootID {
		w.session.Connected = false
	}
	return nil
}

// Revoke implements steps.Agents.
func (w *world) Revoke(_ context.Context, _ id.Node, reason string) error {
	w.revoked = reason
	return nil
}

// decideNode applies a verb as the aggregate does.
func (w *world) decideNode(c node.Command) error {
	events, err := node.Decide(w.node, c)
	if err != nil {
		return err
	}
	for _, e := range events {
		w.events = append(w.events, e.EventType())
		w.node = node.Evolve(w.node, e)
	}
	return nil
}

// RecordHardware implements steps.Nodes.
func (w *world) RecordHardware(_ context.Context, _ id.Node, from node.Source, h node.Hardware) error {
	return w.decideNode(node.RecordHardware{Facts: node.HardwareRecorded{Source: from, Hardware: h}})
}

// AttestWipe implements steps.Nodes.
func (w *world) AttestWipe(_ context.Context, _ id.Node, wipe node.Wipe) error {
	return w.decideNode(node.AttestWipe{Wipe: wipe})
}

// ObservePower implements steps.Nodes.
func (w *world) ObservePower(_ context.Context, _ id.Node, key string, p node.Power) error {
	return w.decideNode(node.ObservePower{Power: p, Key: key})
}

// LearnBMC implements steps.Nodes.
func (w *world) LearnBMC(_ context.Context, _ id.Node, fingerprint string, quirks json.RawMessage, system string) error {
	return w.decideNode(node.LearnBMC{Facts: node.BMCLearned{Fingerprint: fingerprint, Quirks: quirks, System: system}})
}

// wants fails unless err has the code and, where one is given, that reason in its details.
func wants(t *testing.T, what string, err error, code fault.Code, reason string) {
	t.Helper()
	var f *fault.Error
	if code == "" {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return
	}
	if !errors.As(err, &f) || f.Code != code || reason != "" && f.Details["reason"] != reason {
		t.Errorf("%s: %v (%v), want %s %s", what, err, f, code, reason)
	}
}
