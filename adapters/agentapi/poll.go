package agentapi

import (
	"context"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/agents"
)

const (
	maxRoom  = 64  // orders of one answer
	maxDoing = 512 // ids in a request
	// handOutTime bounds the appends of one answer, which go on when the agent has gone: what they did is known then.
	handOutTime = 10 * time.Second
)

var errTooMany = fault.Invalid(fault.Issue{Path: "doing", Message: "at most 512"})

// poll waits for orders.
func (g *Gateway) poll(ctx context.Context, who caller, in protocol.PollRequest) (protocol.PollAnswer, error) {
	if err := who.inSession(in.BootID); err != nil {
		return protocol.PollAnswer{}, err
	}
	if len(in.Doing) > maxDoing {
		return protocol.PollAnswer{}, errTooMany
	}
	in.Room, in.Doing = min(in.Room, maxRoom), commandIDs(in.Doing)
	asked, most := g.Clock(), g.PollMax
	contact := agents.Contact{Agent: who.ID, BootID: in.BootID, Role: who.Role, Doing: in.Doing}
	if who.Role == agent.RoleSite {
		if contact.Boot = g.offered(ctx, who, in, asked); contact.Boot != "" {
			most = min(most, bootPoll)
			defer func() {
				if ctx.Err() != nil {
					g.leases.gone(who, asked)
				}
			}()
		}
	}
	g.presence.touch(contact, asked)
	waiting := g.queue.wait(who.ID.String(), homeOf(who.State))
	defer g.queue.done(waiting)
	until := time.Now().Add(min(seconds(in.WaitSeconds), most))
	if !g.ready(ctx, until) {
		return protocol.PollAnswer{Orders: []protocol.Order{}, Boot: g.lease(who, in.BootID, asked)}, ctx.Err()
	}
	g.giveUp(ctx, g.queue.forgotten(who.ID.String(), in.BootID, in.Doing, asked))
	answer, err := g.attend(ctx, who, in, waiting, until)
	if err == nil {
		g.presence.touch(contact, g.Clock())
	}
	answer.Boot = g.lease(who, in.BootID, asked)
	return answer, err
}

// attend looks for orders, and waits for news where there are none.
func (g *Gateway) attend(ctx context.Context, who caller, in protocol.PollRequest, waiting *poll, until time.Time,
) (protocol.PollAnswer, error) {
	before, _ := g.leases.serving(who, in.BootID, g.Clock())
	for {
		again, err := g.authenticate(ctx, who.ID, who.certificate.Fingerprint, agent.State.Authenticates)
		if err == nil {
			err = again.inSession(in.BootID)
		}
		if err != nil {
			return protocol.PollAnswer{}, err
		}
		g.fence(ctx, again.State)
		answer := protocol.PollAnswer{Orders: []protocol.Order{}}
		var news bool
		if answer.Cancel, news, err = g.over(ctx, who, in); err != nil {
			return answer, err
		}
		if answer.Orders, err = g.handOut(ctx, who, in); err != nil {
			return answer, err
		}
		now, _ := g.leases.serving(who, in.BootID, g.Clock())
		news = news || now != before // what it is to serve is told at once
		left := time.Until(until)
		if len(answer.Orders) > 0 || news || left <= 0 || !g.sleep(ctx, waiting, g.nap(who, in, left)) {
			return answer, ctx.Err()
		}
	}
}

// nap is how long to wait at most: to the end of the poll, or until an order is due to be given again.
func (g *Gateway) nap(who caller, in protocol.PollRequest, left time.Duration) time.Duration {
	if in.Room <= 0 {
		return left
	}
	due := g.queue.next(who.ID.String(), in.BootID, homeOf(who.State), g.turn(who, in.BootID), in.Doing, g.Redeliver)
	if due.IsZero() {
		return left
	}
	return min(left, max(due.Sub(g.Clock()), time.Millisecond))
}

// sleep waits for news; false: the poll is to be answered as it is.
func (g *Gateway) sleep(ctx context.Context, waiting *poll, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-waiting.wake:
	case <-timer.C:
	case <-waiting.replaced:
		return false
	case <-g.closing:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// ready waits until the queue is as the log has it.
func (g *Gateway) ready(ctx context.Context, until time.Time) bool {
	select {
	case <-g.loaded:
		return true
	default:
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-g.loaded:
		return true
	case <-timer.C:
	case <-g.closing:
	case <-ctx.Done():
	}
	return false
}

// over lists what the agent works on in vain. News says that it was not told so before.
func (g *Gateway) over(ctx context.Context, who caller, in protocol.PollRequest) (cancel []string, news bool, err error) {
	for _, text := range g.queue.missing(in.Doing, who.ID.String(), in.BootID) {
		c, err := id.Parse[id.AgentCommand](text)
		if err != nil {
			continue
		}
		told := g.presence.told(who.ID, text)
		if !told { // the queue may be behind the log: the stream decides
			state, _, err := g.Service.AgentCommand(ctx, c)
			if err != nil && fault.CodeOf(err) != fault.NotFound {
				return nil, false, err
			}
			if err == nil && live(state, who.ID, in.BootID) {
				continue
			}
			news = true
			g.presence.tell(who.ID, text)
		}
		cancel = append(cancel, text)
	}
	g.presence.keep(who.ID, in.Doing)
	return cancel, news, nil
}

// handOut gives the agent what it has room for. Orders are appended at once, each on its own: of two gateways one gets it.
func (g *Gateway) handOut(ctx context.Context, who caller, in protocol.PollRequest) ([]protocol.Order, error) {
	ids := g.queue.take(who.ID.String(), in.BootID, homeOf(who.State), g.turn(who, in.BootID), in.Room, in.Doing, g.Clock(), g.Redeliver)
	if len(ids) == 0 {
		return []protocol.Order{}, nil
	}
	appending, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOutTime)
	defer cancel()
	outcomes := make([]*protocol.Order, len(ids))
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, text := range ids[1:] {
		all.Go(func() { outcomes[i+1], errs[i+1] = g.offer(appending, who, in.BootID, text) })
	}
	outcomes[0], errs[0] = g.offer(appending, who, in.BootID, ids[0])
	all.Wait()
	orders := []protocol.Order{}
	var failure error
	for i, o := range outcomes {
		if o != nil {
			orders = append(orders, *o)
		} else if errs[i] != nil {
			failure = errs[i]
		}
	}
	if ctx.Err() != nil { // the answer will not arrive
		g.queue.lost(ids)
	}
	if len(orders) > 0 {
		return orders, nil // what failed is tried again by the next poll
	}
	return orders, failure
}

// offer hands one order out. Nil without an error: another has it, or it is over.
func (g *Gateway) offer(ctx context.Context, who caller, bootID, text string) (*protocol.Order, error) {
	c, err := id.Parse[id.AgentCommand](text)
	if err != nil {
		g.queue.release(text, elsewhere, g.Clock())
		return nil, nil //nolint:nilerr // what is no id is nobody's order
	}
	done, err := g.Service.HandOutAgentCommand(ctx, g.call(who.ID), c, who.ID, bootID)
	switch fault.CodeOf(err) {
	case "":
	case fault.Conflict, fault.InvalidState, fault.NotFound:
		g.queue.release(text, elsewhere, g.Clock())
		return nil, nil
	default:
		g.queue.release(text, failed, g.Clock())
		return nil, err
	}
	g.queue.handed(done.State, done.Position, g.Clock())
	if done.State.Status.Settled() { // its deadline had passed
		return nil, nil
	}
	if done.State.Kind.Boots() && g.stale(ctx, who, bootID, text) {
		return nil, nil
	}
	g.queue.release(text, given, g.Clock())
	g.Observer.HandedOut(string(done.State.Kind))
	return orderOf(done.State), nil
}

// turn is what of its home's orders an agent may have now.
func (g *Gateway) turn(who caller, bootID string) turn {
	if who.Role != agent.RoleSite {
		return turn{}
	}
	return g.leases.turn(who, bootID, g.Clock())
}

func orderOf(s agentcommand.State) *protocol.Order {
	return &protocol.Order{
		ID: s.AgentCommand.String(), Kind: s.Kind, NodeID: s.Node.String(), Attempt: s.Attempt, NotAfter: s.NotAfter, Payload: s.Payload,
	}
}

// homeOf is whose orders an agent gets.
func homeOf(a agent.State) place {
	if a.Role == agent.RoleSite {
		return place{agentcommand.RoleSite, a.Site.String()}
	}
	return place{agentcommand.Role(a.Role), a.Node.String()}
}

// commandIDs leaves out what is no id of an agent command.
func commandIDs(texts []string) []string {
	kept := make([]string, 0, len(texts))
	for _, text := range texts {
		if _, err := id.Parse[id.AgentCommand](text); err == nil {
			kept = append(kept, text)
		}
	}
	return kept
}

func seconds(s float64) time.Duration {
	const most = 3600
	if !(s > 0) { // also what is no number
		return 0
	}
	return time.Duration(min(s, most) * float64(time.Second))
}
