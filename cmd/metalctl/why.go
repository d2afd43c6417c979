package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

const whyLong = `Tells in sentences why a machine is where it is: who asked for what and when, what followed from
it, what stands in the
way, and what can be done next. Nothing is changed. Without --all it tells what led from the last resting place to
here.`

func newWhy(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "why NODE", Short: "Tell why a machine is where it is, and what can be done",
		Long:    withExits(whyLong, remoteExits),
		Example: "  metalctl why node_01k…", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			n, err := c.GetNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			events, err := client.Collect(c.History(cmd.Context(), n.ID, true), 0)
			if err != nil {
				return err
			}
			return a.why(cmd.Context(), c, n, events, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "tell everything since the machine was handed over")
	return cmd
}

// whyAnswer is what why tells, for programs.
type whyAnswer struct {
	Node    contract.Node `json:"node"`
	Chain   []whyLink     `json:"chain"`
	Now     string        `json:"now"`
	Next    []whyNext     `json:"next"`
	Omitted int           `json:"omitted"` // events before the chain
}

// whyLink is one event of the chain, in words.
type whyLink struct {
	At       string `json:"at"`
	Who      string `json:"who"`
	What     string `json:"what"`
	Position uint64 `json:"position"`
	Request  string `json:"requestId,omitempty"`
}

func (a *app) why(ctx context.Context, c *client.Client, n contract.Node, events []contract.Event, all bool) error {
	start := 0
	if !all {
		start = lastRest(events)
	}
	answer := whyAnswer{Node: n, Now: now(n), Next: next(n, events[start:]), Omitted: start}
	names := map[string]string{}
	for _, e := range events[start:] {
		answer.Chain = append(answer.Chain, whyLink{
			At: clock(e.At), Who: who(ctx, c, names, e), What: sentence(e), Position: e.Position, Request: e.RequestID,
		})
	}
	if a.flag.output == "json" || a.flag.output == "yaml" {
		return a.document(answer)
	}
	return a.tell(answer)
}

// lastRest is the index of the event that began what is going on: the first after the machine last rested, or, where it
// rests now, the one that ended its rest before that.
func lastRest(events []contract.Event) int {
	rests := func(e contract.Event) bool {
		state, moved := strings.CutPrefix(e.Type, "node.provision.")
		kind := node.InfoOf(node.ProvisionState(state)).Kind
		return moved && state != string(node.Failed) && (kind == node.Stable || kind == node.Terminal)
	}
	moves := func(e contract.Event) bool { return strings.HasPrefix(e.Type, "node.provision.") }
	last := len(events) - 1
	for last >= 0 && !moves(events[last]) {
		last--
	}
	for i := last - 1; i >= 0; i-- {
		if rests(events[i]) {
			return i + 1
		}
	}
	return 0
}

// who names the principal behind an event, by name where the credential may know it.
func who(ctx context.Context, c *client.Client, names map[string]string, e contract.Event) string {
	switch e.Principal {
	case "", "system":
		return "the control plane"
	}
	if name, asked := names[e.Principal]; asked {
		return name
	}
	name := e.Principal
	if p, err := c.GetPrincipal(ctx, e.Principal); err == nil {
		name = p.Name + " (" + p.ID + ")"
	}
	names[e.Principal] = name
	return name
}

// now says where the machine is and what holds it there.
func now(n contract.Node) string {
	info := node.InfoOf(node.ProvisionState(n.Provision))
	var s strings.Builder
	_, _ = fmt.Fprintf(&s, "It is %s: %s.", n.Provision, info.Meaning) // a Builder never fails
	if n.Provision == string(node.Failed) {
		_, _ = fmt.Fprintf(&s, " It failed from %s", n.FailedFrom)
		if e := lastError(n); e != "" {
			_, _ = fmt.Fprintf(&s, ": %s", e)
		}
		s.WriteString(".")
	}
	if info.Kind == node.WorkflowDriven && !atRest(n) {
		s.WriteString(workflowNow(n, info))
	}
	if n.Maintenance {
		s.WriteString(" It is in maintenance" + because(n.MaintenanceReason) + ".")
	}
	if n.Cordoned {
		s.WriteString(" It is cordoned" + because(n.CordonReason) + ".")
	}
	if n.ReleaseUnverified {
		s.WriteString(" Its disks are NOT proven wiped.")
	}
	return s.String()
}

func workflowNow(n contract.Node, info node.StateInfo) string {
	if n.Workflow != "" {
		return " Workflow " + n.Workflow + " runs."
	}
	return " It waits for its workflow, " + orElse(info.Profile, "that of its deploy profile") + ", to start."
}

func (a *app) tell(w whyAnswer) error {
	var s strings.Builder
	_, _ = fmt.Fprintf(&s, "%s (%s)\n\n", w.Node.Name, w.Node.ID) // a Builder never fails
	if w.Omitted > 0 {
		_, _ = fmt.Fprintf(&s, "  (%d earlier events; --all tells them too)\n", w.Omitted)
	}
	for _, l := range w.Chain {
		_, _ = fmt.Fprintf(&s, "  %s  %s: %s\n", l.At, l.Who, l.What)
	}
	_, _ = fmt.Fprintf(&s, "\n%s\n", w.Now)
	if len(w.Next) == 0 {
		s.WriteString("Nothing moves it from here that an operator can ask for.\n")
	} else {
		s.WriteString("What can be done next:\n")
	}
	for _, v := range w.Next {
		_, _ = fmt.Fprintf(&s, "  %s  → %s\n", v.Command, v.To)
	}
	_, err := fmt.Fprint(a.out, s.String())
	return err
}
