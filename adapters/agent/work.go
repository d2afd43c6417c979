package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// Why an order's context ended before its deadline.
var (
	errCancelled = errors.New("the order is over for the control plane")
	errShutDown  = errors.New("the agent shuts down")
)

// work is one order being carried out.
type work struct {
	a      *runner
	entry  *entry
	order  protocol.Order
	kind   agentcommand.Kind
	ctx    context.Context //nolint:containedctx // of the order, from its entry to its result
	cancel context.CancelFunc
	log    *slog.Logger
	secret secrets
}

func (a *runner) newWork(ctx context.Context, e *entry) *work {
	kind, shipped := agentcommand.Find(agentcommand.Kinds, e.order.Kind)
	if !shipped { // of a module: what it does is not known here, so everything is assumed of it
		kind = agentcommand.Kind{Name: e.order.Kind, Destructive: true, Attested: true, SelfTerminating: true}
	}
	w := &work{a: a, entry: e, order: e.order, kind: kind, log: a.log.With("order", e.order.ID, "kind", e.order.Kind)}
	w.ctx, w.cancel = ctx, func() { e.cancel(nil) }
	if !w.order.NotAfter.IsZero() {
		deadline, stop := context.WithTimeout(ctx, w.order.NotAfter.Sub(a.now()))
		w.ctx, w.cancel = deadline, func() { stop(); e.cancel(nil) }
	}
	return w
}

// acksFirst tells whether the gateway must know that the order is in the journal before anything is done.
func (w *work) acksFirst() bool { return w.kind.Destructive || w.kind.SelfTerminating }

// latest is the context of the order that may wait longest.
func (w *work) latest(all []*work) context.Context {
	return slices.MaxFunc(all, func(a, b *work) int { return a.order.NotAfter.Compare(b.order.NotAfter) }).ctx
}

// run carries the order out and delivers what came of it.
func (w *work) run() {
	defer w.a.working.Done()
	defer w.cancel()
	late := time.AfterFunc(ackAfter, func() {
		if w.a.book.ack(w.entry) {
			w.a.acks.add(w.order.ID)
		}
	})
	result, after := w.outcome()
	late.Stop()
	if result == nil || !w.deliver(result) {
		w.over(nil)
		return
	}
	w.leave(after)
	w.over(result)
}

// drop ends an order that nothing was done of.
func (w *work) drop() {
	defer w.a.working.Done()
	defer w.cancel()
	w.log.Warn("the gateway does not want this order any more; nothing was done")
	w.over(nil)
}

// over frees the order's room.
func (w *work) over(result *protocol.ResultRequest) {
	w.a.book.settle(w.entry, result, w.a.now())
	select {
	case w.a.freed <- struct{}{}:
	default:
	}
}

// outcome is what is told of the order; nil: nothing, as nobody waits for it any more.
func (w *work) outcome() (*protocol.ResultRequest, func(context.Context) error) {
	value, after, err := w.handle()
	cause := context.Cause(w.ctx)
	if err != nil && (errors.Is(cause, errCancelled) || errors.Is(cause, errShutDown)) {
		w.log.Info("broken off", "cause", cause, "error", w.secret.clean(err.Error()))
		return nil, nil
	}
	out := &protocol.ResultRequest{BootID: w.a.bootID, ID: w.order.ID, Status: agentcommand.Succeeded}
	if value != nil {
		text, marshalErr := json.Marshal(value)
		if marshalErr != nil {
			err = errors.Join(err, fault.Wrap(marshalErr, fault.Internal, "the result can't be written as JSON"))
		} else {
			out.Result = w.secret.cleanJSON(text)
		}
	}
	if err != nil {
		w.fail(out, err)
		after = nil
	}
	if err := w.sign(out); err != nil {
		w.fail(out, err)
		after = nil
	}
	w.log.Info("done", "status", out.Status, "code", out.Code, "reason", out.Reason)
	return out, after
}

// handle runs the handler. A panic in it fails the order, not the agent.
func (w *work) handle() (value any, after func(context.Context) error, err error) {
	handler := w.a.Kinds[w.order.Kind]
	switch {
	case handler == nil:
		return nil, nil, fault.New(fault.InvalidInput, "this agent does not do %s", w.order.Kind)
	case w.ctx.Err() != nil:
		return nil, nil, fault.Wrap(context.Cause(w.ctx), fault.Timeout, "it is too late to begin")
	}
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a handler panicked", "panic", w.secret.clean(fmt.Sprint(p)), "stack", string(debug.Stack()))
			value, after, err = nil, nil, fault.New(fault.Internal, "the agent's handler of %s broke down", w.order.Kind)
		}
	}()
	progress := &reporter{w: w, last: time.Now()}
	return handler(w.ctx, Order{Order: w.order, Secret: w.fetch, Progress: progress.report})
}

// reasonMost bounds what is told of a failure.
const reasonMost = 2 << 10

// fail says what went wrong. INVALID_INPUT is an order that the agent refuses: nothing was done.
func (w *work) fail(out *protocol.ResultRequest, err error) {
	out.Status = agentcommand.Failed
	var known *fault.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) && w.ctx.Err() != nil:
		out.Code, out.Reason = string(fault.Timeout), "it was not done by its deadline"
	case errors.As(err, &known):
		out.Code, out.Reason = string(known.Code), known.Message
		for _, i := range known.Issues {
			out.Reason += fmt.Sprintf("; %s: %s", i.Path, i.Message)
		}
		if told := detailsOf(known); len(told) > 0 {
			details, _ := json.Marshal(told) // what can't be written is not told
			out.Details = w.secret.cleanJSON(details)
		}
		if known.Code == fault.InvalidInput {
			out.Status = agentcommand.Rejected
		}
	default:
		out.Code, out.Reason = string(fault.DriverError), err.Error()
	}
	out.Reason = fault.Bounded(w.secret.clean(out.Reason), reasonMost)
}

// detailsOf is what a failure tells besides why: its details, and what to do next.
func detailsOf(e *fault.Error) map[string]any {
	if e.Remedy == "" {
		return e.Details
	}
	told := map[string]any{"remedy": e.Remedy}
	maps.Copy(told, e.Details)
	return told
}

// leave does what ends this process, once the gateway has the result.
func (w *work) leave(after func(context.Context) error) {
	if after == nil {
		return
	}
	if w.kind.SelfTerminating {
		w.a.mu.Lock()
		w.a.reopen, w.a.leaving = true, w.a.Now().Add(leaveWithin)
		w.a.mu.Unlock()
		w.a.closeSession(w.a.orders, string(w.order.Kind))
	}
	if err := after(w.a.orders); err != nil {
		w.log.Error("after the result", "error", err)
		w.a.mu.Lock()
		w.a.leaving = time.Time{}
		w.a.mu.Unlock()
	}
}
