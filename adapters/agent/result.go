package agent

import (
	"context"
	"crypto"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// sign puts the agent's signature under a result that decides something.
func (w *work) sign(out *protocol.ResultRequest) error {
	if !w.kind.Attested {
		return nil
	}
	command, err := id.Parse[id.AgentCommand](w.order.ID)
	if err != nil {
		return fault.Wrap(err, fault.InvalidInput, "the order's id is not one of an agent command")
	}
	machine, err := id.Parse[id.Node](w.order.NodeID)
	if err != nil {
		return fault.Wrap(err, fault.InvalidInput, "the order's node is not the id of one")
	}
	key, certificate := w.a.link.signer()
	if key == nil {
		return fault.New(fault.Unauthenticated, "the agent has no certificate to sign with")
	}
	at := w.a.now().UTC()
	input := agentcommand.SigningInput(command, w.order.Kind, machine, w.order.Attempt, w.a.bootID, w.order.Payload, out.Result, at)
	signature, err := key.Sign(rand.Reader, input, crypto.Hash(0))
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the result can't be signed")
	}
	out.Attestation = &agentcommand.Attestation{Certificate: certificate, Signature: signature, At: at}
	return nil
}

// deliver sends a result until the gateway has it, however long it is away, and tells whether it took it.
func (w *work) deliver(out *protocol.ResultRequest) bool {
	ctx, stop := w.untilAbandoned()
	defer stop()
	for pause := w.a.pauses(); ; {
		err := w.a.link.call(ctx, protocol.PathResult, out, nil, callWithin)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case fault.CodeOf(err) == fault.InvalidInput && isMore(out):
			w.log.Error("the gateway does not take this result", "error", err)
			out = w.unfit(out, err)
		case !transient(err):
			w.log.Warn("the gateway does not want this result", "error", err)
			return false
		default:
			w.log.Warn("result", "error", err)
			pause.wait(ctx, err)
		}
	}
}

// untilAbandoned is the order's context without its deadline: a result is worth telling after it.
func (w *work) untilAbandoned() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	stop := context.AfterFunc(w.a.orders, cancel)
	abandoned := context.AfterFunc(w.ctx, func() {
		if errors.Is(context.Cause(w.ctx), errCancelled) {
			cancel()
		}
	})
	return ctx, func() { stop(); abandoned(); cancel() }
}

// isMore tells whether a result says more than that the order failed, and why.
func isMore(r *protocol.ResultRequest) bool {
	return r.Status == agentcommand.Succeeded || len(r.Details)+len(r.Result) > 0
}

// unfit makes less of a result that the gateway refuses, so that whoever waits for it learns why there is none. Of one that failed
// the details go first: a wipe of hundreds of broken disks may be too long with them.
func (w *work) unfit(refused *protocol.ResultRequest, err error) *protocol.ResultRequest {
	out := &protocol.ResultRequest{
		BootID: w.a.bootID, ID: w.order.ID, Status: refused.Status, Code: refused.Code, Reason: refused.Reason,
	}
	switch {
	case refused.Status == agentcommand.Succeeded:
		w.fail(out, fault.Wrap(err, fault.Internal, "it was done, but the gateway does not take its result: %v", err))
	case len(refused.Details) > 0:
		out.Result = refused.Result
	}
	if err := w.sign(out); err != nil {
		w.log.Error("sign", "error", err)
	}
	return out
}

// fetch asks the gateway for a secret that the order's payload refers to.
func (w *work) fetch(ctx context.Context, ref string) ([]byte, error) {
	for pause := w.a.pauses(); ; {
		var answer protocol.SecretAnswer
		err := w.a.link.call(ctx, protocol.PathSecret,
			protocol.SecretRequest{BootID: w.a.bootID, ID: w.order.ID, Ref: ref}, &answer, callWithin)
		switch {
		case err == nil:
			w.secret.add(answer.Value)
			return answer.Value, nil
		case ctx.Err() != nil:
			return nil, fault.Wrap(ctx.Err(), fault.Timeout, "the gateway did not give a secret in time")
		case !transient(err):
			return nil, err
		}
		w.log.Warn("secret", "error", err)
		pause.wait(ctx, err)
	}
}

// every is the least time between two reports of one order.
const every = time.Second

// reporter sends little of the progress that it is told, the newest of it.
type reporter struct {
	w *work

	mu      sync.Mutex
	last    time.Time
	sending bool
}

func (r *reporter) report(percent float64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.sending || now.Sub(r.last) < every || r.w.ctx.Err() != nil {
		return
	}
	r.last, r.sending = now, true
	r.w.a.working.Go(func() {
		err := r.w.a.link.call(r.w.ctx, protocol.PathProgress, protocol.ProgressRequest{
			BootID: r.w.a.bootID, ID: r.w.order.ID, Percent: min(percent, 100), Message: r.w.secret.clean(message),
		}, nil, callWithin)
		if err != nil {
			r.w.log.Debug("progress", "error", err) // there will be more
		}
		r.mu.Lock()
		r.sending = false
		r.mu.Unlock()
	})
}
