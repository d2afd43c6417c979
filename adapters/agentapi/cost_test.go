package agentapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/jointoken"
)

// counted counts what agent commands cost.
type counted struct {
	event.Store
	appends, reads atomic.Int64
}

func (c *counted) Append(ctx context.Context, s event.Stream, v event.Version, m event.Meta, e ...event.Event) (event.Position, error) {
	c.appends.Add(1)
	return c.Store.Append(ctx, s, v, m, e...)
}

func (c *counted) Read(ctx context.Context, s event.Stream, after event.Version) ([]event.Recorded, error) {
	c.reads.Add(1)
	return c.Store.Read(ctx, s, after)
}

// An order costs three appends: asked for, handed out, settled. Where it was asked for in this process nothing is read; in
// another, its stream once. A signed result reads the agent's certificates.
func TestWhatAnOrderCosts(t *testing.T) {
	w := newWorld(t)
	log := &counted{Store: w.log}
	authorizer, err := authz.New()
	fatal(t, err)
	here := commands.New(log, authorizer, w.secrets, w.clock.now)
	elsewhere := w.Service
	g := w.gateway(func(c *agentapi.Config) { c.Service, c.Log = here, log })
	a, n := w.ramdisk(g)
	w.ask(n, "first") // once it arrives, the gateway has followed the log to here
	o := a.one()
	if code := a.settle(protocol.ResultRequest{BootID: a.boot, ID: o.ID, Status: agentcommand.Succeeded}); code != "" {
		t.Fatal(code)
	}
	a.poll(0)
	for name, test := range map[string]struct {
		ask            *commands.Service
		sign           bool
		appends, reads int64
	}{
		"asked for here":              {here, false, 3, 0},
		"asked for elsewhere":         {elsewhere, false, 2, 1},
		"asked for here, signed":      {here, true, 3, 1},
		"asked for elsewhere, signed": {elsewhere, true, 2, 2},
	} {
		log.appends.Store(0)
		log.reads.Store(0)
		w.Service = test.ask
		w.ask(n, name)
		o := a.one()
		result := protocol.ResultRequest{BootID: a.boot, ID: o.ID, Status: agentcommand.Succeeded, Result: json.RawMessage(`{}`)}
		if test.sign {
			result = a.signed(o, `{}`)
		}
		if code := a.settle(result); code != "" {
			t.Fatal(code)
		}
		if appends, reads := log.appends.Load(), log.reads.Load(); appends != test.appends || reads != test.reads {
			t.Errorf("%s: %d appends and %d reads, want %d and %d", name, appends, reads, test.appends, test.reads)
		}
	}
}

// An agent that boots without end does not fill the log.
func TestFlappingAgentsAreLimited(t *testing.T) {
	w := newWorld(t)
	w.clock.stop()
	g := w.gateway()
	a, _ := w.ramdisk(g)
	var limited int
	for i := range 30 {
		a.boot = fmt.Sprint("boot ", i)
		switch code := a.trySession(); code {
		case "":
		case fault.RateLimited:
			limited++
		default:
			t.Fatal(code)
		}
	}
	if limited < 5 {
		t.Errorf("%d of 30 sessions were refused", limited)
	}
	w.clock.move(time.Minute)
	if code := a.trySession(); code != "" {
		t.Errorf("a minute later: %s", code)
	}
}

// What is secret stands in no event, answer or log line, whatever is asked in whatever order.
func TestNothingSecretIsTold(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	n := w.machine()
	token := w.token(jointoken.Minted{Role: jointoken.RoleDiscovery, Node: n, Expect: jointoken.Expect{Serial: "S1"}})
	a := w.agent(g, agentcommand.RoleRamdisk)
	for _, claims := range []protocol.Claims{{}, {Serial: "S1"}, {Serial: "S2"}} {
		a.tryJoin(token, claims)
	}
	a.tryJoin(token+"x", protocol.Claims{Serial: "S1"})
	_, secret, _ := strings.Cut(token, ".")
	events, _, err := w.log.ReadAll(t.Context(), 0, nil, 1000)
	fatal(t, err)
	for _, e := range events {
		if text := string(e.Data) + string(e.RawMeta); strings.Contains(text, secret) || strings.Contains(text, "calvin") {
			t.Errorf("%s tells a secret", e.Type)
		}
	}
	if strings.Contains(w.logged.String(), secret) {
		t.Error("the log tells the token")
	}
}
