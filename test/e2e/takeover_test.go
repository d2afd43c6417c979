package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		goesOn(t, l, n, at)
	}
}

// goesOn waits for the first thing that a process manager does for a node after a time; or until it is seen that the node has
// arrived, which it may have before.
func goesOn(t *testing.T, l *lab.Lab, node string, at time.Time) {
	t.Helper()
	must(t, lab.Poll(lab.Patience, node+" to go on", func() error {
		seen, err := l.Client.GetNode(t.Context(), node)
		if err != nil || seen.Workflow == "" && (seen.Provision == "ready" || seen.Provision == "deployed") {
			return err
		}
		for e, err := range lab.History(t.Context(), l.Client, node) {
			if err != nil {
				return err
			}
			if managed := strings.HasPrefix(e.Type, "workflow.") || strings.HasPrefix(e.Type, "node.provision."); managed && e.DecidedAt.After(at) {
				t.Logf("%s went on %s after the kill", node, e.DecidedAt.Sub(at).Round(time.Millisecond))
				return nil
			}
		}
		return fmt.Errorf("it is left in %s with %q", seen.Provision, seen.Workflow)
	}))
}
