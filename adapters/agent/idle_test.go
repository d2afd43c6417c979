package agent

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
)

// Many agents live in one process of a simulation: one that waits for orders costs little.
func TestAnIdleAgentCostsLittle(t *testing.T) {
	g := newGateway(t)
	const agents = 50
	before := runtime.NumGoroutine()
	for i := range agents {
		o := g.options(nil)
		o.Room, o.BootID, o.Role, o.Machine = 1, "", agentcommand.RoleRamdisk, newBox()
		o.Name = fmt.Sprint(i)
		run(t, o)
	}
	g.until("all wait", func() bool { return g.count(protocol.PathPoll) >= agents })
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	// Run, the test's own, two of the connection's client, and two of its server; those that made the connection go away.
	const most = 7
	count := func() float64 { return float64(runtime.NumGoroutine()-before) / agents }
	for end := time.Now().Add(soon); count() > most && time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		continue
	}
	each := count()
	t.Logf("%.1f goroutines each, server included; %d KiB of heap and %d KiB of stacks in all", each, m.HeapInuse>>10, m.StackInuse>>10)
	if each > most {
		t.Errorf("%.1f goroutines each", each)
	}
}
