package main

import (
	"context"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// The bounds of what completion asks for: nobody waits long for a tab.
const (
	completionPatience = 2 * time.Second
	mostCompletions    = 100
)

// watchNode calls show with the machine after every event of it, its workflows and its agent commands, from the state n on,
// until show is done or the context ends. A watch that a person ends is no failure.
func (a *app) watchNode(ctx context.Context, c *client.Client, n contract.Node,
	show func(contract.Node, contract.Event) (done bool, err error),
) error {
	for e, err := range c.Follow(ctx, client.Feed{After: &n.Position, Node: n.ID}) {
		if err != nil {
			return err
		}
		if e.Position <= n.Position {
			continue // what was shown already holds it
		}
		if !ofNode(e) { // of its workflows and agent commands
			if done, err := show(n, e); err != nil || done {
				return err
			}
			continue
		}
		if n, err = c.GetNode(ctx, n.ID, client.AtPosition(e.Position)); err != nil {
			return err
		}
		if done, err := show(n, e); err != nil || done {
			return err
		}
	}
	return ctx.Err()
}

// ofNode tells an event of a machine's own stream: those of its agent commands are about it too.
func ofNode(e contract.Event) bool { return strings.HasPrefix(e.Type, "node.") }

// watchList prints a row whenever a machine that matches, or that did, is not any more as it was shown.
func (a *app) watchList(ctx context.Context, c *client.Client, f client.NodeFilter, from uint64, shown []contract.Node,
) error {
	listed := map[string]contract.Node{}
	for _, n := range shown {
		listed[n.ID] = n
	}
	for e, err := range c.Follow(ctx, client.Feed{After: &from, Tenant: f.Tenant}) {
		if err != nil {
			return err
		}
		id, _ := strings.CutPrefix(e.Subject, "node/")
		if !ofNode(e) || e.Position <= listed[id].Position {
			continue
		}
		n, err := c.GetNode(ctx, id, client.AtPosition(e.Position))
		if fault.CodeOf(err) == fault.NotFound {
			continue // the event may be seen, the machine may not
		}
		if err != nil {
			return err
		}
		before, was := listed[id]
		if !was && !matches(f, n) {
			continue
		}
		listed[id] = n
		if was && standing(before) == standing(n) && before.Power == n.Power {
			continue // such as an inventory
		}
		if err := a.rows(nodeKind, n); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// matches is the filter of a list, applied to one machine.
func matches(f client.NodeFilter, n contract.Node) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	flag := func(want *bool, have bool) bool { return want == nil || *want == have }
	state := len(f.States) == 0
	for _, s := range f.States {
		state = state || s == n.Provision
	}
	for _, l := range f.Labels {
		k, v, valued := strings.Cut(l, "=")
		have, there := n.Labels[k]
		if !there || valued && have != v {
			return false
		}
	}
	return state && same(f.Tenant, n.Tenant) && same(f.Site, n.Site) && same(f.Pool, n.Pool) &&
		strings.HasPrefix(n.Name, f.NamePrefix) && flag(f.Maintenance, n.Maintenance) && flag(f.Cordoned, n.Cordoned)
}

// rows prints more rows of a table that has its header already.
func (a *app) rows(k kind[contract.Node], nodes ...contract.Node) error {
	if a.flag.output == "table" || a.flag.output == "wide" {
		return k.table(a, nodes, false)
	}
	for _, n := range nodes {
		if err := k.one(a, n); err != nil {
			return err
		}
	}
	return nil
}
