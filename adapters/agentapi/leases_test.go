package agentapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// offer polls as an agent that would serve network boot.
func (a *agent) offer(wait time.Duration) protocol.PollAnswer {
	a.t.Helper()
	var answer protocol.PollAnswer
	code := a.call(protocol.PathPoll, protocol.PollRequest{
		BootID: a.boot, WaitSeconds: wait.Seconds(), Room: 4, Boot: &protocol.BootOffer{URL: "http://boot." + a.boot},
	}, &answer)
	if code != "" {
		a.t.Fatalf("poll: %s", code)
	}
	return answer
}

// serves polls until the agent has the lease of a term.
func (a *agent) serves(term int64) protocol.BootLease {
	a.t.Helper()
	var got protocol.BootLease
	a.w.until("the agent has the boot lease", func() bool {
		if answer := a.offer(time.Second); answer.Boot != nil {
			got = *answer.Boot
		}
		return got.Term == term
	})
	return got
}

// gets polls until there is an order for the agent, which must be a certain one.
func (a *agent) gets(order agentcommand.State) {
	a.t.Helper()
	var got []protocol.Order
	a.w.until("there is an order", func() bool {
		got = a.offer(time.Second).Orders
		return len(got) > 0
	})
	if len(got) != 1 || got[0].ID != order.AgentCommand.String() {
		a.t.Errorf("it gets %+v", got)
	}
}

// history is what the log has of the site's boot lease.
func (w *world) history() (types []string) {
	w.t.Helper()
	events, err := w.log.Read(w.t.Context(), bootlease.StreamOf(w.site), 0)
	fatal(w.t, err)
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}

func (w *world) clear(n id.Node, key string) agentcommand.State {
	return w.ask(n, key, func(r *agentcommand.Requested) {
		r.Kind, r.Role, r.Payload = agentcommand.BootEntryClear, agentcommand.RoleSite, json.RawMessage(`{"nodeId":"x"}`)
	})
}

// Of two agents, at two gateways, one has the lease, and it alone is told about network boot. One that stops gives it to the other
// at once, one that dies after a while.
func TestOneAgentOfASiteServesNetworkBoot(t *testing.T) {
	w := newWorld(t)
	w.clock.stop()
	one, two := w.siteAgent(w.gateway()), w.siteAgent(w.gateway())
	n := w.machine()
	lease := one.serves(1)
	if most := (bootlease.TTL - bootlease.Guard + 2*time.Second).Seconds(); lease.Seconds <= 0 || lease.Seconds > most || lease.Complete {
		t.Errorf("the lease is %+v", lease)
	}
	if answer := two.offer(time.Millisecond); answer.Boot != nil {
		t.Errorf("two have the lease: %+v", answer.Boot)
	}
	order := w.clear(n, "k1")
	if answer := two.offer(2 * time.Second); len(answer.Orders) > 0 || answer.Boot != nil {
		t.Errorf("the agent without the lease gets %+v", answer)
	}
	one.gets(order)
	one.settle(protocol.ResultRequest{BootID: one.boot, ID: order.AgentCommand.String(), Status: agentcommand.Succeeded})
	state, err := w.OnBootLease(t.Context(), system(), w.site, bootlease.Complete{Facts: bootlease.Completed{Site: w.site, Term: 1}})
	fatal(t, err)
	if !state.Complete {
		t.Fatalf("%+v", state)
	}
	w.until("the holder hears that it has everything, and where the other boot server is", func() bool {
		answer := one.offer(time.Second)
		return answer.Boot != nil && answer.Boot.Complete && slices.Contains(answer.Boot.Servers, "http://boot."+one.boot)
	})

	one.poll(0)                             // it offers nothing any more
	if got := two.serves(2); got.Complete { // while no time passes: the lease does not run out
		t.Errorf("the new holder is said to have everything: %+v", got)
	}
	if answer := one.offer(time.Millisecond); answer.Boot != nil {
		t.Errorf("two have the lease: %+v", answer.Boot)
	}
	w.clock.move(bootlease.TTL) // the second is not heard of any more
	one.serves(3)
	if got, want := w.history(), []string{
		"bootlease.taken", "bootlease.completed", "bootlease.released", "bootlease.taken", "bootlease.taken",
	}; !slices.Equal(got, want) {
		t.Errorf("the log has %q", got)
	}
	if code := one.call(protocol.PathClose, protocol.CloseRequest{BootID: one.boot, Reason: "shutdown"}, &struct{}{}); code != "" {
		t.Errorf("close: %s", code)
	}
	two.serves(4)
}

// overtaken is a table of leases whose first answer arrives late.
type overtaken struct {
	agentapi.Presence
	first      sync.Once
	read, sent chan struct{}
}

func (o *overtaken) SwapBootLeases(ctx context.Context, next []bootlease.Lease, look []id.Site) ([]bootlease.Standing, error) {
	found, err := o.Presence.SwapBootLeases(ctx, next, look)
	o.first.Do(func() {
		close(o.read)
		<-o.sent
	})
	return found, err
}

// A gateway reads the lease, and before it has the answer hears that the lease was given back: what it then has is older than that.
func TestWhatWasReadBeforeALeaseWasGivenBack(t *testing.T) {
	w := newWorld(t)
	w.clock.stop()
	one := w.siteAgent(w.gateway())
	one.serves(1)
	late := &overtaken{read: make(chan struct{}), sent: make(chan struct{})}
	g := w.gateway(func(c *agentapi.Config) { late.Presence, c.Presence = c.Presence, late })
	two := w.siteAgent(g)
	two.offer(time.Millisecond)
	<-late.read
	if code := one.call(protocol.PathClose, protocol.CloseRequest{BootID: one.boot, Reason: "shutdown"}, &struct{}{}); code != "" {
		t.Errorf("close: %s", code)
	}
	machine, n := w.ramdisk(g)
	w.ask(n, "k")
	machine.one() // the gateway has followed the log to here
	close(late.sent)
	two.serves(2)
}

// The next boot of the holder goes on with its term, whatever is left of it; and a gateway that starts knows who has it.
func TestTheHolderComesBack(t *testing.T) {
	w := newWorld(t)
	a := w.siteAgent(w.gateway())
	a.serves(1)
	a.boot += "-2"
	if code := a.trySession(); code != "" {
		t.Fatal(code)
	}
	a.serves(1)
	a.g = w.gateway()
	a.serves(1)
	_, err := w.pool.Exec(t.Context(), `TRUNCATE boot_leases`) // as after a restore without it
	fatal(t, err)
	other := w.siteAgent(w.gateway())
	a.serves(1)
	if got := w.history(); len(got) != 1 {
		t.Errorf("the log has %q", got)
	}
	w.clock.move(2 * bootlease.TTL)
	other.serves(2)
}

// Orders of the site that anybody may carry out are for the holder first, and for another where the holder does not take them.
func TestTheHolderIsAskedFirst(t *testing.T) {
	w := newWorld(t)
	w.clock.stop()
	g := w.gateway()
	holder, second := w.siteAgent(g), w.siteAgent(g)
	n := w.machine()
	holder.serves(1)
	proxy := func(r *agentcommand.Requested) {
		r.Kind, r.Role = agentcommand.SiteHTTPProxy, agentcommand.RoleSite
		r.Payload = json.RawMessage(`{"method":"GET","url":"http://10.0.0.1/"}`)
	}
	got := make(chan []protocol.Order, 1)
	go func() {
		var answer protocol.PollAnswer
		_, err := second.try(t.Context(), protocol.PathPoll, protocol.PollRequest{BootID: second.boot, WaitSeconds: pollWait.Seconds(), Room: 4}, &answer)
		if err != nil {
			t.Error(err)
		}
		got <- answer.Orders
	}()
	w.until("the second waits", func() bool { return g.Waiting() > 0 })
	first := w.ask(n, "p1", proxy)
	holder.gets(first)
	left := w.ask(n, "p2", proxy)
	w.clock.start() // the holder does not take it
	if orders := <-got; len(orders) != 1 || orders[0].ID != left.AgentCommand.String() {
		t.Errorf("the second gets %+v", orders)
	}
}

// An agent that serves no network boot, or says where in words that no machine may be told, never has the lease.
func TestWhoServesNoNetworkBoot(t *testing.T) {
	w := newWorld(t)
	a := w.siteAgent(w.gateway())
	for _, url := range []string{"", "boot", "ftp://x", "http://a,http://b", "http://x/\n"} {
		for range 2 {
			var answer protocol.PollAnswer
			code := a.call(protocol.PathPoll, protocol.PollRequest{
				BootID: a.boot, WaitSeconds: 0.6, Room: 1, Boot: &protocol.BootOffer{URL: url},
			}, &answer)
			if code != "" || answer.Boot != nil {
				t.Errorf("%q: %s, %+v", url, code, answer.Boot)
			}
		}
	}
	ramdisk, _ := w.ramdisk(a.g)
	if answer := ramdisk.offer(time.Second); answer.Boot != nil {
		t.Error("a machine's agent has the boot lease")
	}
	if _, err := w.BootLease(t.Context(), w.site); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the log has %q, %v", w.history(), err)
	}
}
