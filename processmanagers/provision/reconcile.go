package provision

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/steps"
)

// Name is the process manager's, and the owner of the workflows that it starts.
const Name = "provision"

const (
	// maxMoves bounds one pass.
	maxMoves = 8
	// poll is when a node is looked at again while its workflow runs.
	poll = 30 * time.Second
)

// Provision is the process manager. It is safe for concurrent use.
type Provision struct {
	service *commands.Service
	catalog *steps.Catalog
	ports   steps.Ports
	clock   commands.Clock
	logger  *slog.Logger
	wake    func(ctx context.Context, key string) error
}

// New makes the process manager. The catalog's power.setPower carries the power verb out, through the ports.
func New(service *commands.Service, catalog *steps.Catalog, ports steps.Ports, clock commands.Clock, logger *slog.Logger,
) *Provision {
	if logger == nil {
		logger = slog.Default()
	}
	return &Provision{
		service: service, catalog: catalog, ports: ports, clock: clock, logger: logger,
		wake: func(context.Context, string) error { return nil },
	}
}

// WakeEngine gives the way to the workflow engine: a node whose workflow has run for a while has the engine look at it again,
// in case the engine was never told. It is called before the process manager is used.
func (p *Provision) WakeEngine(wake func(ctx context.Context, key string) error) *Provision {
	p.wake = wake
	return p
}

// Manager is what workers run. Its key is a node's id.
func (p *Provision) Manager() processmanagers.Manager {
	return processmanagers.Manager{Name: Name, Wakes: Wakes, Rests: Rests, Reconcile: p.Reconcile}
}

// Wakes tells which events need a look: what operators and agents did, and the ends of workflows and power actions. What the
// process manager did itself is none of them.
func Wakes(r event.Recorded) (key string, ok bool) {
	switch e := r.Event.(type) {
	case node.Moved:
		return r.Stream.ID(), wakes(e)
	case node.UnrescueAsked, node.PowerAsked:
		return r.Stream.ID(), true
	case workflow.Ended:
		return e.Node.String(), e.Owner == Name && !id.IsZero(e.Node)
	case agentcommand.Settled:
		return e.Node.String(), id.IsZero(e.Workflow)
	case agent.SessionOpened:
		return e.Node.String(), e.Role == agent.RoleNode && !id.IsZero(e.Node)
	}
	return "", false
}

func wakes(m node.Moved) bool {
	switch {
	case m.To == node.Failed:
		return m.Verb == node.VerbAbort
	case m.Verb == node.VerbAbandon:
		return true // a power action may be under way
	}
	return !rests(m) && node.AskedBy(m.Verb) != node.ProcessManager
}

func rests(m node.Moved) bool {
	kind := node.InfoOf(m.To).Kind
	return kind == node.Stable || kind == node.Terminal || m.To == node.Rescue && m.Verb == node.VerbComplete
}

// Rests tells that a node is where nothing happens by itself.
func Rests(r event.Recorded) (key string, ok bool) {
	m, moved := r.Event.(node.Moved)
	return r.Stream.ID(), moved && rests(m)
}

// Reconcile makes the moves that are due for a node.
func (p *Provision) Reconcile(ctx context.Context, key string) (again time.Duration, err error) {
	n, err := id.Parse[id.Node](key)
	if err != nil {
		return 0, err
	}
	fresh := true
	for made := range maxMoves {
		var more bool
		again, more, err = p.move(ctx, n, fresh)
		fresh = err != nil // after a move of its own it knows what there is
		if again == poll && made == 0 {
			return again, p.wake(ctx, key)
		}
		switch fault.CodeOf(err) {
		case fault.Conflict, fault.InvalidState: // somebody was first: what is due now is another move
			ctx = commands.Fresh(ctx)
		default:
			if err != nil || !more {
				return again, err
			}
		}
	}
	return time.Millisecond, err
}

// move makes the one move that is due. more says that there may be another.
func (p *Provision) move(ctx context.Context, of id.Node, fresh bool) (again time.Duration, more bool, err error) {
	n, err := p.nodeOf(ctx, of, fresh)
	if fault.CodeOf(err) == fault.NotFound {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	w, err := p.workflowOf(ctx, n, fresh)
	if err != nil {
		return 0, false, err
	}
	agentless, err := p.agentless(ctx, n)
	if err != nil {
		return 0, false, err
	}
	m := Next(n, w, agentless)
	switch m.Do {
	case Rest:
		return 0, false, nil
	case Wait:
		return poll, false, nil
	case Accept:
		return p.accept(ctx, n)
	case Power:
		return p.power(ctx, n)
	case StopPower:
		return 0, true, p.stopPower(ctx, n)
	default:
		return 0, true, p.do(ctx, n, w, m)
	}
}

// do makes a move about a workflow.
func (p *Provision) do(ctx context.Context, n node.State, w *workflow.State, m Move) error {
	var err error
	call := newCall(m.Workflow)
	switch m.Do {
	case Start:
		return p.start(ctx, n, m)
	case Create:
		return p.create(ctx, n, m)
	case Complete:
		return p.complete(ctx, n, w)
	case Fail:
		_, err = p.service.Fail(ctx, call, n.ID, m.Workflow, m.Code, m.Message)
	case Retry:
		_, err = p.service.ContinueWorkflow(ctx, call, m.Workflow, m.Run)
	case Abort:
		_, err = p.service.AbortWorkflow(ctx, call, m.Workflow, m.Message)
	case Rest, Wait, Accept, Power, StopPower:
	}
	return err
}

// start makes a workflow the node's active one. A profile that does not resolve fails the node before anything is claimed.
func (p *Provision) start(ctx context.Context, n node.State, m Move) error {
	if err := p.service.CheckProfile(ctx, n, m.Profile); err != nil {
		return p.refused(ctx, n, m.Workflow, m.Profile, err)
	}
	_, err := p.service.StartWorkflow(ctx, newCall(m.Workflow), n.ID, m.Profile)
	return err
}

// create makes the workflow that the node has decided on.
func (p *Provision) create(ctx context.Context, n node.State, m Move) error {
	_, err := p.service.CreateWorkflow(ctx, newCall(m.Workflow), n, Name)
	return p.refused(ctx, n, m.Workflow, m.Profile, err)
}

// refused fails the node where its profile can't run, with every issue. What is away is tried again.
func (p *Provision) refused(ctx context.Context, n node.State, w id.Workflow, profile node.Profile, err error) error {
	var known *fault.Error
	switch code := fault.CodeOf(err); code {
	case fault.NotFound, fault.InvalidInput, fault.InvalidConfig:
		why := "profile " + profile.ID + " can't run: " + strings.TrimPrefix(err.Error(), string(code)+": ")
		if errors.As(err, &known) {
			why = known.Advised(why)
		}
		_, failed := p.service.Fail(ctx, newCall(w), n.ID, w, code, why)
		return failed
	}
	return err
}

// complete moves the node on. Without a proven wipe it fails instead of reaching ready.
func (p *Provision) complete(ctx context.Context, n node.State, w *workflow.State) error {
	role, err := roleOf(n, w)
	if err != nil {
		return err
	}
	_, err = p.service.Complete(ctx, newCall(w.Workflow), n.ID, w.Workflow, role)
	if fault.CodeOf(err) != fault.UnverifiedWipe {
		return err
	}
	_, failed := p.service.Fail(ctx, newCall(w.Workflow), n.ID, w.Workflow, fault.UnverifiedWipe, explained(err))
	return failed
}

// roleOf is what the installed OS is for, by the deploy's profile.
func roleOf(n node.State, w *workflow.State) (node.Role, error) {
	if n.Provision != node.Deploying || len(w.Document) == 0 {
		return "", nil
	}
	var document profile.Document
	if err := json.Unmarshal(w.Document, &document); err != nil {
		return "", fault.Wrap(err, fault.InvalidConfig, "the profile of workflow %s can't be read", w.Workflow)
	}
	return node.Role(document.Role), nil
}

// accept moves a joined machine on once its agent is connected: a pool asks for nothing more yet.
func (p *Provision) accept(ctx context.Context, n node.State) (again time.Duration, more bool, err error) {
	if p.ports.Agents == nil {
		return 0, false, fault.New(fault.InvalidConfig, "a joined machine can't be accepted: this program knows no agents")
	}
	session, err := p.ports.Agents.OfNode(ctx, n.ID)
	if err != nil {
		return 0, false, err
	}
	if !session.Connected {
		return poll, false, nil
	}
	_, err = p.service.Accept(ctx, newCall(id.Workflow{}), n.ID)
	return 0, true, err
}

func (p *Provision) nodeOf(ctx context.Context, n id.Node, fresh bool) (node.State, error) {
	if !fresh {
		return p.service.NodeSeen(ctx, n)
	}
	state, _, err := p.service.Node(ctx, n)
	return state, err
}

// workflowOf is the node's active workflow, or the newest that was; nil: it was never created, or there is none.
func (p *Provision) workflowOf(ctx context.Context, n node.State, fresh bool) (*workflow.State, error) {
	w := n.LastWorkflow
	if n.Workflow != nil {
		w = n.Workflow.ID
	}
	if id.IsZero(w) {
		return nil, nil
	}
	var state workflow.State
	var err error
	if fresh {
		state, _, err = p.service.Workflow(ctx, w)
	} else {
		state, err = p.service.WorkflowSeen(ctx, w)
	}
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &state, nil
}

// agentless tells whether the node's pool has machines without an agent. It is asked only where a workflow may be started.
func (p *Provision) agentless(ctx context.Context, n node.State) (bool, error) {
	if n.Workflow != nil || idle(n) {
		return false, nil
	}
	in, err := p.service.Pool(ctx, n.Pool)
	return in.Policy.Agent == pool.AgentNone, err
}

// newCall is the control plane asking. What may be repeated is decided by the streams themselves.
func newCall(w id.Workflow) commands.Call {
	c := commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
	if !id.IsZero(w) {
		c.CorrelationID = w.String()
	}
	return c
}
