// Package bootlease gives the agent that takes over a site's network boot what the one before it had: every boot entry that is
// still good, so that a machine in the middle of its boot goes on with the token that it was promised.
//
// An agent begins a term of the boot lease without any boot entry. Each one is asked for again, by an agent command of its own
// that carries the reference to the same token: the token is fetched under a live order, and that is in the log, as ever. What the
// former holder was given and has not finished ends, and its step asks the new one.
package bootlease

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/steps"
)

// Name is the process manager's.
const Name = "bootlease"

const (
	// pause is when it is looked again whether the entries are set. It is so for the seconds of a takeover only.
	pause = 500 * time.Millisecond
	// setWithin is how long the new holder may take for an entry.
	setWithin = 30 * time.Second
	// tries is how often an entry is asked for before the machine is left to its step's next round.
	tries = 3
)

// Sites tells what goes on at a site.
type Sites interface {
	// WorkflowsAt lists the workflows of a site's machines that are not over, or have ended since a time, as far as the log reached
	// when it was asked.
	WorkflowsAt(ctx context.Context, at id.Site, since time.Time) ([]id.Workflow, error)
	// TokenSpent reports whether the join token that was minted under a step's key was used, or is not good any more.
	TokenSpent(ctx context.Context, key string) (bool, error)
}

// Manager gives new holders what they need. It is safe for concurrent use.
type Manager struct {
	service *commands.Service
	sites   Sites
	clock   commands.Clock
	logger  *slog.Logger
}

// New makes one. The clock is that of the log's store, where it has one.
func New(service *commands.Service, sites Sites, clock commands.Clock, logger *slog.Logger) *Manager {
	if logger == nil {
		logger = slog.Default()
	}
	return &Manager{service: service, sites: sites, clock: clock, logger: logger}
}

// Manager is it as a process manager. Its key is a site's id.
func (m *Manager) Manager() processmanagers.Manager {
	return processmanagers.Manager{Name: Name, Wakes: Wakes, Rests: Rests, Reconcile: m.Reconcile}
}

// Wakes tells which events need a look: that an agent took the lease.
func Wakes(r event.Recorded) (key string, ok bool) {
	if taken, is := r.Event.(bootlease.Taken); is {
		return taken.Site.String(), true
	}
	return "", false
}

// Rests tells after which events there is nothing to do: the holder has everything, or there is none.
func Rests(r event.Recorded) (key string, ok bool) {
	switch e := r.Event.(type) {
	case bootlease.Completed:
		return e.Site.String(), true
	case bootlease.Released:
		return e.Site.String(), true
	}
	return "", false
}

// Reconcile looks at one site.
func (m *Manager) Reconcile(ctx context.Context, key string) (time.Duration, error) {
	at, err := id.Parse[id.Site](key)
	if err != nil {
		return 0, err
	}
	lease, err := m.service.BootLease(ctx, at)
	if fault.CodeOf(err) == fault.NotFound || err == nil && (lease.Released || lease.Complete) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	t := &takeover{Manager: m, lease: lease}
	if err := t.look(ctx); err != nil {
		return 0, err
	}
	if t.waiting > 0 {
		return pause, nil
	}
	_, err = m.service.OnBootLease(ctx, system(), at, bootlease.Complete{Facts: bootlease.Completed{
		Site: at, Term: lease.Term, Entries: t.set, Missing: t.missing,
	}})
	if err == nil {
		m.logger.Info("the agent with the boot lease has every boot entry", "site", at, "term", lease.Term, "entries", t.set,
			"missing", t.missing)
	}
	return 0, err
}

func system() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}

// takeover is one look at one term.
type takeover struct {
	*Manager
	lease                 bootlease.State
	set, missing, waiting int
}

func (t *takeover) look(ctx context.Context) error {
	// What ended since may have gone on by an entry that was set again.
	workflows, err := t.sites.WorkflowsAt(ctx, t.lease.Site, t.lease.TakenAt)
	if err != nil {
		return err
	}
	for _, id := range workflows {
		w, _, err := t.service.Workflow(ctx, id)
		if err != nil {
			return err
		}
		if err := t.workflow(ctx, w); err != nil {
			return fmt.Errorf("boot entry of %s: %w", id, err)
		}
	}
	return nil
}

// workflow ends what the former holder has in hand of a workflow, and has the newest entry set again.
func (t *takeover) workflow(ctx context.Context, w workflow.State) error {
	var newest agentcommand.State
	var of steps.BootOrder
	for _, order := range steps.BootOrders(w) {
		s, err := t.last(ctx, order)
		if err != nil {
			return err
		}
		switch {
		case !s.Exists():
		case !s.Status.Settled() && !id.IsZero(s.Agent) && s.Agent != t.lease.Agent:
			// The name of no boot: whichever boot has it, it is over.
			if _, err := t.service.ExpireAgentCommand(ctx, system(), s.AgentCommand, "none", agentcommand.LeaseLost); err != nil {
				return err
			}
		case s.Status == agentcommand.Succeeded && s.Kind == agentcommand.BootEntrySet:
			newest, of = s, order
		}
	}
	if !newest.Exists() || of.Step.StartedAt.After(t.lease.TakenAt) {
		return nil
	}
	return t.again(ctx, newest, of, steps.EntryWanted(w, of.Step))
}

// last is the agent command of an order that counts: the one that was asked for after the others had lost their agent.
func (t *takeover) last(ctx context.Context, order steps.BootOrder) (s agentcommand.State, err error) {
	for n := 0; n <= steps.MostAgain; n++ {
		next, _, err := t.service.AgentCommand(ctx, agentcommand.IDOf(order.Key(n)))
		if fault.CodeOf(err) == fault.NotFound {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if s = next; !steps.LostLease(s) {
			return s, nil
		}
	}
	return s, nil
}

// again asks the holder for an entry, once; after an order that its boot did not live to finish, once more. What was asked for
// counts too when the machine has booted by it since, and nobody wants it any more.
func (t *takeover) again(ctx context.Context, set agentcommand.State, of steps.BootOrder, wanted bool) error {
	now := t.clock()
	var entry agentcommand.BootEntry
	if err := json.Unmarshal(set.Payload, &entry); err != nil || !now.Before(entry.ExpiresAt) {
		return err
	}
	for n := 1; n <= tries; n++ {
		key := "bootlease:" + t.lease.Site.String() + ":" + strconv.FormatInt(t.lease.Term, 10) + ":" + set.AgentCommand.String() +
			":" + strconv.Itoa(n)
		s, _, err := t.service.AgentCommand(ctx, agentcommand.IDOf(key))
		switch {
		case fault.CodeOf(err) == fault.NotFound && wanted:
			return t.ask(ctx, key, set, of, now)
		case fault.CodeOf(err) == fault.NotFound:
			return nil
		case err != nil:
			return err
		case !s.Status.Settled():
			t.waiting++
			return nil
		case s.Status == agentcommand.Succeeded:
			t.set++
			return nil
		}
	}
	t.missing++
	return nil
}

func (t *takeover) ask(ctx context.Context, key string, set agentcommand.State, of steps.BootOrder, now time.Time) error {
	// A machine that has joined is past its boot. An entry with its token would only boot it once more, into nothing.
	if spent, err := t.sites.TokenSpent(ctx, of.TokenKey); err != nil || spent {
		return err
	}
	t.waiting++
	asked, err := t.service.RequestAgentCommand(ctx, system(), agentcommand.Requested{
		Key: key, Kind: set.Kind, Role: set.Role, Node: set.Node, Tenant: set.Tenant, Site: set.Site, Workflow: set.Workflow,
		Step: set.Step, Attempt: set.Attempt, NotAfter: now.Add(setWithin), Payload: set.Payload,
	})
	if err != nil {
		return err
	}
	// Whoever clears the entry says so in the workflow before: looked at now, nothing slips in behind it.
	w, _, err := t.service.Workflow(ctx, set.Workflow)
	if err != nil || steps.EntryWanted(w, of.Step) {
		return err
	}
	return t.takeBack(ctx, asked.State, now)
}

// takeBack undoes an entry that was asked for while its workflow took it away.
func (t *takeover) takeBack(ctx context.Context, asked agentcommand.State, now time.Time) error {
	if _, err := t.service.CancelAgentCommand(ctx, system(), asked.AgentCommand, "its workflow has taken the boot entry away"); err != nil {
		return err
	}
	gone, err := json.Marshal(agentcommand.BootEntryGone{NodeID: asked.Node.String()})
	if err != nil {
		return err
	}
	_, err = t.service.RequestAgentCommand(ctx, system(), agentcommand.Requested{
		Key: asked.Key + ":clear", Kind: agentcommand.BootEntryClear, Role: asked.Role, Node: asked.Node, Tenant: asked.Tenant,
		Site: asked.Site, Workflow: asked.Workflow, Step: asked.Step, Attempt: asked.Attempt, NotAfter: now.Add(setWithin), Payload: gone,
	})
	return err
}
