package agentapi

import (
	"context"
	"math"
	"strings"
	"sync"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections/agents"
)

// ack notes that orders are in the agent's journal. Where one of them is over, the answer is why: an agent that must do
// nothing in vain acknowledges first, and begins once it is answered.
func (g *Gateway) ack(ctx context.Context, who caller, in protocol.AckRequest) (empty, error) {
	ids := commandIDs(in.IDs)
	if len(ids) != len(in.IDs) || len(ids) > maxDoing {
		return empty{}, fault.Invalid(fault.Issue{Path: "ids", Message: "ids of agent commands, at most 512"})
	}
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, text := range ids {
		all.Go(func() { errs[i] = g.reached(ctx, who, in.BootID, text, agentcommand.Acked) })
	}
	all.Wait()
	var over error
	for _, err := range errs {
		switch fault.CodeOf(err) {
		case "":
		case fault.Conflict, fault.InvalidState, fault.NotFound:
			over = err
		default: // to be tried again
			return empty{}, err
		}
	}
	return empty{}, over
}

// reached moves an order on.
func (g *Gateway) reached(ctx context.Context, who caller, bootID, text string, status agentcommand.Status) error {
	c, err := commandID(text)
	if err != nil {
		return err
	}
	done, err := g.Service.ProgressAgentCommand(ctx, g.call(who.ID), c, who.ID, bootID, status)
	if err == nil {
		g.queue.handed(done.State, done.Position, g.Clock())
	}
	return err
}

func commandID(text string) (id.AgentCommand, error) {
	c, err := id.Parse[id.AgentCommand](text)
	if err != nil {
		return c, fault.Invalid(fault.Issue{Path: "id", Message: "an agent command's id"})
	}
	return c, nil
}

// progress keeps how far an order is. Only the first of an order is an event: that it runs.
func (g *Gateway) progress(ctx context.Context, who caller, in protocol.ProgressRequest) (empty, error) {
	if status, mine := g.queue.with(in.ID, who.ID.String(), in.BootID); !mine || status != agentcommand.Running {
		if err := g.reached(ctx, who, in.BootID, in.ID, agentcommand.Running); err != nil {
			return empty{}, err
		}
	}
	const most = 256
	percent := in.Percent
	if math.IsNaN(percent) || percent < 0 {
		percent = -1
	}
	g.presence.note(agents.Progress{
		Command: in.ID, Agent: who.ID, Percent: min(percent, 100), Message: clean(in.Message, most),
	})
	return empty{}, nil
}

// clean bounds a text that PostgreSQL is to keep.
func clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// result settles an order. The same again, after a lost answer, is answered as the first time.
func (g *Gateway) result(ctx context.Context, who caller, in protocol.ResultRequest) (empty, error) {
	c, err := commandID(in.ID)
	if err != nil {
		return empty{}, err
	}
	done, err := g.Service.SettleAgentCommand(g.asOf(ctx), g.call(who.ID), c, agentcommand.Settle{
		Agent: who.ID, BootID: in.BootID, Status: in.Status, Result: in.Result, Code: in.Code, Reason: in.Reason, Details: in.Details,
		Attestation: in.Attestation,
	})
	if err != nil {
		g.Observer.Settled("", string(in.Status), err)
		return empty{}, err
	}
	g.queue.handed(done.State, done.Position, g.Clock())
	g.Observer.Settled(string(done.State.Kind), string(done.State.Status), nil)
	return empty{}, nil
}

// secret gives a value that an order in the agent's hands refers to. That it is given is an event; the value is nowhere.
func (g *Gateway) secret(ctx context.Context, who caller, in protocol.SecretRequest) (protocol.SecretAnswer, error) {
	c, err := commandID(in.ID)
	if err != nil {
		return protocol.SecretAnswer{}, err
	}
	if err := who.inSession(in.BootID); err != nil {
		return protocol.SecretAnswer{}, err
	}
	if err := g.Service.FetchSecret(ctx, g.call(who.ID), c, who.ID, in.BootID, in.Ref); err != nil {
		return protocol.SecretAnswer{}, err
	}
	value, err := g.Secrets.Get(ctx, node.SecretRef(in.Ref))
	return protocol.SecretAnswer{Value: value}, err
}
