package lab

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
)

// Patience is how long a node may take from one state to another on a busy computer.
const Patience = 3 * time.Minute

// Enroll hands every machine over that has not been yet, and gives the ids of their nodes in order.
func (l *Lab) Enroll() (nodes []string) {
	l.T.Helper()
	for _, m := range l.Machines() {
		n, is := l.NodeOf(m.Name)
		if !is {
			n = l.EnrollOne(m)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// NodeOf is the id of a machine's node.
func (l *Lab) NodeOf(machine string) (node string, enrolled bool) {
	l.guard.Lock()
	defer l.guard.Unlock()
	node, enrolled = l.Nodes[machine]
	return node, enrolled
}

// enrolled lists the machines that were.
func (l *Lab) enrolled() []string {
	l.guard.Lock()
	defer l.guard.Unlock()
	return slices.Sorted(maps.Keys(l.Nodes))
}

// EnrollOne hands one machine over.
func (l *Lab) EnrollOne(m sim.Listed) string {
	l.T.Helper()
	n, err := l.Client.Enroll(l.T.Context(), contract.Enrollment{
		Pool: l.Pool, Name: m.Name, MACs: m.MACs,
		BMC: contract.BMCAccess{Address: m.BMC.Address, Credentials: contract.Credentials{Username: m.BMC.Username, Password: m.BMC.Password}},
	})
	l.must(err)
	l.Enrolled(m.Name, n.ID)
	return n.ID
}

// Enrolled notes that a machine was handed over by other means.
func (l *Lab) Enrolled(machine, node string) {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.Nodes[machine] = node
}

// MachineOf is the name of a node's machine.
func (l *Lab) MachineOf(node string) string {
	for _, name := range l.enrolled() {
		if n, _ := l.NodeOf(name); n == node {
			return name
		}
	}
	return ""
}

// Deploy installs the lab's image.
func (l *Lab) Deploy(node string) {
	l.T.Helper()
	_, err := l.Client.Deploy(l.T.Context(), node, contract.Deploy{Profile: "image-host", Version: 1})
	l.must(err)
}

// Undeploy gives a machine back.
func (l *Lab) Undeploy(node, wipe string) {
	l.T.Helper()
	_, err := l.Client.Undeploy(l.T.Context(), node, contract.Wipe{Method: wipe})
	l.must(err)
}

// WaitState waits until a node is in one of the states. One that fails meanwhile ends the test, unless that is waited for.
func (l *Lab) WaitState(node string, states ...string) contract.Node {
	l.T.Helper()
	n, err := l.AwaitState(l.T.Context(), l.Client, node, l.options.Patience, states...)
	if err != nil {
		l.T.Fatal(err)
	}
	return n
}

// AwaitState is WaitState for goroutines that are not the test's, over any replica.
func (l *Lab) AwaitState(ctx context.Context, c *client.Client, node string, within time.Duration, states ...string,
) (contract.Node, error) {
	return l.Await(ctx, c, node, within, strings.Join(states, " or "), func(n contract.Node) (bool, error) {
		if slices.Contains(states, n.Provision) {
			return true, nil
		}
		if n.Provision == "failed" {
			return false, fmt.Errorf("failed from %s: %+v", n.FailedFrom, n.LastError)
		}
		return false, nil
	})
}

// Await follows a node's events until it is as wanted, or can't be any more.
func (l *Lab) Await(ctx context.Context, c *client.Client, node string, within time.Duration, what string,
	wanted func(contract.Node) (bool, error),
) (n contract.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	failed := func(why error) (contract.Node, error) {
		return n, fmt.Errorf("%s (%s) is %s, not %s: %w%s", node, l.MachineOf(node), n.Provision, what, why, l.story(node))
	}
	if n, err = c.GetNode(ctx, node); err != nil {
		return failed(err)
	}
	after := n.Position
	if is, err := wanted(n); is || err != nil {
		if err != nil {
			return failed(err)
		}
		return n, nil
	}
	for e, err := range c.Follow(ctx, client.Feed{After: &after, Node: node, Types: []string{"node.*"}}) {
		if err != nil {
			return failed(err)
		}
		seen, err := c.GetNode(ctx, node, client.AtPosition(e.Position))
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return failed(err)
		}
		n = seen
		if is, err := wanted(n); err != nil {
			return failed(err)
		} else if is {
			return n, nil
		}
	}
	return failed(fmt.Errorf("waited %s: %w", within, ctx.Err()))
}

// History is everything that has happened to a node until now, oldest first. The read model that tells it may be behind the one in
// which a state was seen: it is waited for.
func History(ctx context.Context, c *client.Client, node string) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		at, err := c.Position(ctx)
		if err != nil {
			yield(contract.Event{}, err)
			return
		}
		for e, err := range c.History(ctx, node, true, client.AtPosition(at)) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// AwaitEvent follows everything that happens to a node behind a position until an event is as wanted.
func (l *Lab) AwaitEvent(node string, after uint64, what string, wanted func(contract.Event) bool) contract.Event {
	l.T.Helper()
	ctx, cancel := context.WithTimeout(l.T.Context(), Patience)
	defer cancel()
	for e, err := range l.Client.Follow(ctx, client.Feed{After: &after, Node: node}) {
		l.must(err)
		if wanted(e) {
			return e
		}
	}
	l.T.Fatalf("waited %s for %s%s", Patience, what, l.story(node))
	return contract.Event{}
}

// Workflow is the active workflow of a node, or else the newest.
func (l *Lab) Workflow(node string) (w contract.Workflow) {
	l.T.Helper()
	n, err := l.Client.GetNode(l.T.Context(), node)
	l.must(err)
	if n.Workflow != "" { // the node has it a moment before it is made
		l.must(Poll(Patience, n.Workflow, func() (err error) {
			w, err = l.Client.GetWorkflow(l.T.Context(), n.Workflow)
			return err
		}))
		return w
	}
	for w, err := range l.Client.NodeWorkflows(l.T.Context(), node, nil, client.AtPosition(n.Position)) {
		l.must(err)
		whole, err := l.Client.GetWorkflow(l.T.Context(), w.ID)
		l.must(err)
		return whole
	}
	l.T.Fatalf("%s has no workflow", node)
	return contract.Workflow{}
}

// story is what a person looks at when a machine is not where it should be.
func (l *Lab) story(node string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	for w, err := range l.Client.NodeWorkflows(ctx, node, nil) {
		if err != nil {
			fmt.Fprintf(&b, "\n  workflows: %v", err)
			break
		}
		if whole, err := l.Client.GetWorkflow(ctx, w.ID); err == nil {
			w = whole
		}
		fmt.Fprintf(&b, "\n  %s %s run %d: %s %+v", w.ID, w.Profile, w.Run, w.State, w.Error)
		for _, s := range w.Steps {
			fmt.Fprintf(&b, "\n    %-20s %-10s attempt %d %s", s.ID, s.State, s.Attempt, s.AgentCommand)
			if s.Error != nil {
				fmt.Fprintf(&b, " %s: %s %s", s.Error.Code, s.Error.Message, s.Error.Details)
			}
		}
		break
	}
	if l.options.Story != nil {
		b.WriteString("\n" + l.options.Story())
	}
	if l.Sim == nil {
		return b.String()
	}
	if m, err := l.console(l.MachineOf(node)); err == nil {
		fmt.Fprintf(&b, "\n  machine: %+v", m.View)
		for _, e := range m.Console[max(0, len(m.Console)-20):] {
			fmt.Fprintf(&b, "\n    %s %s %s", e.At.Format("15:04:05.000"), e.Kind, e.Text)
		}
	}
	return b.String()
}
