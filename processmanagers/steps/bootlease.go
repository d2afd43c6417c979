package steps

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/workflow"
)

// MostAgain is how often something is asked of another agent of the site before the step fails.
const MostAgain = 8

// askAgain is ask, of another agent under a name of its own where the one before was lost with the order in hand: it has lost the
// boot lease, without which it does not do this any more, or is not heard of.
func (c *Context) askAgain(ctx context.Context, o Order) (agentcommand.State, error) {
	s, err := c.ask(ctx, o)
	name := o.Name
	for n := 1; n <= MostAgain && err == nil && (LostLease(s) || lostAgent(s)); n++ {
		o.Name = strings.TrimPrefix(name+again(n), ":")
		s, err = c.ask(ctx, o)
	}
	return s, err
}

// again ends the key of what is asked for the nth time more.
func again(n int) string { return ":again-" + strconv.Itoa(n) }

// LostLease reports whether an order ended because its agent lost the boot lease: it is asked for again.
func LostLease(s agentcommand.State) bool {
	return s.Kind.Boots() && s.Status == agentcommand.Expired && s.Reason == agentcommand.LeaseLost
}

// BootOrder is what a step may have asked the agent with its site's boot lease for.
type BootOrder struct {
	Step     workflow.Step
	TokenKey string // of the join token that the entry carries; empty: it clears an entry
	key      string
}

// Key is that of the agent command. From n = 1 on it is what was asked after one that the holder of the lease before was given.
func (o BootOrder) Key(n int) string {
	if n == 0 {
		return o.key
	}
	return o.key + again(n)
}

// BootOrders lists what a workflow may have asked for, in that order. Of a step that was retried it is what the newest attempt
// asked: that took the place of the earlier ones'.
func BootOrders(w workflow.State) []BootOrder {
	var all []BootOrder
	for _, s := range w.Steps {
		if !s.Started {
			continue
		}
		c := Context{Key: w.Key(s)}
		switch s.Action {
		case actionEntry:
			all = append(all, BootOrder{Step: s, key: c.CommandKey(""), TokenKey: c.CommandKey("token")})
		case actionEnsureRamdisk:
			for round := 1; round <= bootRounds; round++ {
				all = append(all, BootOrder{
					Step: s, key: c.CommandKey(roundName("entry", round)), TokenKey: c.CommandKey(roundName("token", round)),
				})
			}
		case actionClear:
			all = append(all, BootOrder{Step: s, key: c.CommandKey("")})
		}
	}
	return all
}

// EntryWanted tells whether a boot entry that a step set is still to be there: its workflow goes on, and no other step has taken
// it away or is about to.
func EntryWanted(w workflow.State, set workflow.Step) bool {
	switch w.Status {
	case workflow.Pending, workflow.Running, workflow.Paused:
	default:
		return false
	}
	return !slices.ContainsFunc(w.Steps, func(s workflow.Step) bool {
		return s.Action == actionClear && s.Started && s.StartedAt.After(set.StartedAt)
	})
}

// boots waits until an agent of the site serves network boot.
func (c *Context) boots(ctx context.Context) error {
	is, err := c.Ports.Agents.SiteBoots(ctx, c.Node.Site)
	if err == nil && !is {
		return NotReady(0)
	}
	return err
}
