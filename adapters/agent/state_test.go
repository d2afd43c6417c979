package agent

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// fullState can be read, and is written to as long as it is not full.
type fullState struct {
	State
	full atomic.Bool
}

func (s *fullState) Save(i Identity) error {
	if s.full.Load() {
		return errors.New("no space left on device")
	}
	return s.State.Save(i)
}

// What the agent's own host does not let it do is no matter of tokens, and no token is spent on it.
func TestAStateThatCannotBeKeptIsNoRefusal(t *testing.T) {
	g := newGateway(t)
	o := g.options(nil)
	state := &fullState{State: MemoryState()}
	state.full.Store(true)
	o.State = state
	err := Run(t.Context(), o)
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != fault.InvalidConfig || !strings.Contains(known.Message, "no space left") {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(known.Message, "gateway") || strings.Contains(known.Remedy, "token") {
		t.Errorf("%s; what to do: %s", known.Message, known.Remedy)
	}
	if len(g.calls) > 0 {
		t.Errorf("the gateway was asked for %s", g.calls[0].path)
	}
}

// Each certificate is an event at the gateway: none is asked for that could not be kept.
func TestNoCertificateIsRenewedThatCannotBeKept(t *testing.T) {
	g := newGateway(t)
	g.renew = 0
	state := &fullState{State: MemoryState()}
	g.refuse = func(path string, _ []byte) error {
		if path == protocol.PathSession {
			state.full.Store(true)
		}
		return nil
	}
	invoke, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
	o.State = state
	run(t, o)
	g.result(g.order(quick, struct{}{}))
	g.do(func() {
		if n := g.count(protocol.PathRenew); n > 0 {
			t.Errorf("%d renewals", n)
		}
	})
}

// A gateway that was mistyped answers no join, and the certificate of the right one is still there.
func TestAJoinThatIsNotAnsweredCostsNoCertificate(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
	o.State = FileState(t.TempDir())
	stop := run(t, o)
	g.result(g.order(quick, struct{}{}))
	check(t, stop(nil))

	mistyped := o
	mistyped.CA, mistyped.Token = strings.Repeat("0", 64), "mjt_another"
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	check(t, Run(ctx, mistyped))
	comesBack(t, g, o)
}

// A gateway that can't renew just now has not refused the agent.
func TestARenewalThatHasToWait(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
	stop := run(t, o)
	g.result(g.order(quick, struct{}{}))
	check(t, stop(nil))

	accepted := g.agents
	g.do(func() {
		g.agents = map[string]bool{}
		g.refuse = func(path string, _ []byte) error {
			if path == protocol.PathRenew {
				return fault.New(fault.Unavailable, "its database is away")
			}
			return nil
		}
	})
	o.Token = ""
	run(t, o)
	g.until("attempts to renew", func() bool { return g.count(protocol.PathRenew) > 1 })
	g.do(func() { g.agents, g.refuse = accepted, nil })
	if r := g.result(g.order(quick, struct{}{})); r.Status != agentcommand.Succeeded {
		t.Errorf("got %+v", r)
	}
}
