package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/test/lab"
)

// Two replicas drive machines; one of them is killed while all machines are on their way. The other one goes on with every
// workflow (test/bench measures how soon), what was acknowledged is there, and nothing is destroyed twice. Then it is the other
// one's turn.
func TestTakeover(t *testing.T) {
	l := lab.Start(t, lab.Options{Machines: 6, Replicas: 2})
	nodes := l.Enroll()
	killed(t, l, nodes, "inspecting", 1)
	for _, n := range nodes {
		l.WaitState(n, "ready")
	}
	t.Log("ready")
	l.Planes[1].Start()
	for _, n := range nodes {
		l.Deploy(n)
	}
	l.Client = l.ClientOf(1)
	killed(t, l, nodes, "deploying", 0)
	for _, n := range nodes {
		l.WaitState(n, "deployed")
	}
	t.Log("deployed")
	l.Planes[0].Start()
	l.Verify()
}

// killed kills a replica as soon as a machine has come to a state, and watches the others go on. The lab's client is on another.
func killed(t *testing.T, l *lab.Lab, nodes []string, state string, victim int) {
	t.Helper()
	l.WaitState(nodes[0], state)
	asked := l.ClientOf(victim)
	for _, n := range nodes {
		_, err := asked.Cordon(t.Context(), n, contract.Reason{Reason: "told to " + state})
		must(t, err)
	}
	l.Planes[victim].Kill()
	at := time.Now()
	for _, n := range nodes {
		seen, err := l.Client.GetNode(t.Context(), n)
		must(t, err)
		if !seen.Cordoned || seen.CordonReason != "told to "+state {
			t.Errorf("%s was told to be cordoned, and is not", n)
		}
		if seen.Workflow == "" && (seen.Provision == "ready" || seen.Provision == "deployed") {
			continue // it had arrived
		}
		moved := goesOn(t, l, n, at)
		t.Logf("%s went on %s after the kill", n, moved.Sub(at).Round(time.Millisecond))
	}
}

// goesOn waits for the first thing that a process manager does for a node after a time.
func goesOn(t *testing.T, l *lab.Lab, node string, at time.Time) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Patience)
	defer cancel()
	start := uint64(0)
	feed := client.Feed{After: &start, Node: node, Types: []string{"workflow.*", "node.provision.*"}}
	for e, err := range l.Client.Follow(ctx, feed) {
		must(t, err)
		if e.DecidedAt.After(at) {
			return e.DecidedAt
		}
	}
	t.Fatalf("%s was left where it was", node)
	return time.Time{}
}
