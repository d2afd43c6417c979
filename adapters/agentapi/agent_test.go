package agentapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	runtime "github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/projections/agentqueue"
)

// host is a machine of which only claims are asked.
type host struct {
	runtime.Machine
	boot string
}

func (h host) BootID() string { return h.boot }

func (host) Claims(context.Context) (protocol.Claims, error) {
	return protocol.Claims{MACs: []string{"02:00:00:00:00:01"}, Serial: "S1"}, nil
}

// run runs the real agent until the test ends, or what it returns is called.
func (w *world) run(g *gateway, token string, kinds map[agentcommand.KindName]runtime.Handler) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- runtime.Run(ctx, runtime.Options{
			Gateway: g.url, CA: w.ca.Fingerprint(), Role: agentcommand.RoleRamdisk, Token: token, Machine: host{boot: uuid.NewString()},
			Version: "1", Name: "host", Kinds: kinds, Room: 2, Backoff: runtime.Backoff{First: 10 * time.Millisecond, Most: 100 * time.Millisecond},
			Logger: slog.New(slog.NewTextHandler(w.logged, nil)),
		})
	}()
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the agent: %v", err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// Two implementations meet: the agent that is shipped, and this gateway.
func TestTheShippedAgent(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(func(c *agentapi.Config) { c.AgentLife = 6 * time.Second; c.PollMax = time.Second })
	n := w.machine()
	token := w.token(jointoken.Minted{Role: jointoken.RoleDiscovery, Node: n, Expect: jointoken.Expect{MACs: []string{"02-00-00-00-00-01"}, Serial: "S1"}})
	var wiped atomic.Int32
	stop := w.run(g, token, map[agentcommand.KindName]runtime.Handler{
		agentcommand.DiskWipe: func(_ context.Context, o runtime.Order) (any, func(context.Context) error, error) {
			wiped.Add(1)
			o.Progress(50, "half")
			return map[string]any{"disks": []string{"<&>\u2028é", string(o.Payload)}}, nil, nil
		},
		agentcommand.NodeReboot: func(ctx context.Context, _ runtime.Order) (any, func(context.Context) error, error) {
			<-ctx.Done()
			return nil, nil, ctx.Err()
		},
	})
	asked := w.ask(n, "wipe")
	w.until("the wipe has succeeded", func() bool { return w.status(asked.AgentCommand) == agentcommand.Succeeded })
	if s, _, err := w.AgentCommand(t.Context(), asked.AgentCommand); err != nil || !s.Attested {
		t.Errorf("attested %t, %v", s.Attested, err)
	}
	reboot := w.ask(n, "reboot", func(r *agentcommand.Requested) { r.Kind, r.Payload = agentcommand.NodeReboot, json.RawMessage(`{}`) })
	w.until("the other order is acknowledged", func() bool { return w.status(reboot.AgentCommand) == agentcommand.Acked })
	if _, err := w.CancelAgentCommand(t.Context(), system(), reboot.AgentCommand, "aborted"); err != nil {
		t.Fatal(err)
	}

	w.until("its certificate is renewed, and used", func() bool {
		who, err := w.Agent(t.Context(), commands.AgentOf(n))
		return err == nil && len(who.Certificates) >= 2 && len(who.Current) == 1
	})

	// The gateway goes and comes back as another one at the same address.
	g.stop(t)
	fatal(t, w.runner.CatchUp(t.Context(), agentqueue.Name))
	second := w.ask(n, "wipe again")
	back := w.serve(w.config(func(c *agentapi.Config) { c.PollMax = time.Second }), strings.TrimPrefix(g.url, "https://"))
	w.until("the second wipe has succeeded", func() bool { return w.status(second.AgentCommand) == agentcommand.Succeeded })
	if wiped.Load() != 2 {
		t.Errorf("wiped %d times", wiped.Load())
	}
	stop()
	w.until("no poll is left", func() bool { return back.Waiting() == 0 })
}
