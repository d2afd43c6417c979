package chaos

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/processmanagers/enginetest"
	"github.com/better-compute/metal/processmanagers/steps"
)

// life is a machine's: enrolled, deployed and given back, with the shipped profiles and a machine that does what it is told.
type life struct {
	*enginetest.World
	machine *enginetest.Machine
	states  []node.ProvisionState // that it rested in
}

// shipped is what comes with the product, read once for all lives.
var shipped = sync.OnceValues(func() ([]profile.Document, *steps.Catalog) {
	profiles, err := builtin.Profiles()
	if err != nil {
		panic(err)
	}
	catalog, err := steps.NewCatalog(agentcommand.Kinds, steps.Shipped())
	if err != nil {
		panic(err)
	}
	return profiles, catalog
})

func born(t *testing.T) *life {
	t.Helper()
	profiles, catalog := shipped()
	m := &enginetest.Machine{Number: enginetest.Number, Power: node.PowerOff}
	o := enginetest.Options{Profiles: profiles, Config: enginetest.Config(), Answer: m.Answers, Catalog: catalog}
	return &life{World: enginetest.New(t, o, node.Enrolling, ""), machine: m}
}

// live runs the whole life.
func (l *life) live(t *testing.T) {
	t.Helper()
	verbs := []func() error{
		func() error { return nil },
		func() error {
			_, err := l.Outside.Deploy(t.Context(), enginetest.Operator(), l.Node, node.Profile{ID: "image-host", Version: 1})
			return err
		},
		func() error {
			_, err := l.Outside.Undeploy(t.Context(), enginetest.Operator(), l.Node, node.WipeQuick)
			return err
		},
	}
	for _, verb := range verbs {
		if err := verb(); err != nil {
			t.Errorf("in %s: %v", l.State().Provision, err)
			return
		}
		l.Run(nil)
		l.states = append(l.states, l.State().Provision)
	}
}

// lived is what must be the same however often the control plane died.
type lived struct {
	States    []node.ProvisionState
	Installed bool
	Wipes     int
	Writes    int
	Asked     map[string]int // destructive agent commands, by step and kind: each once
	Failed    bool
}

func livedOf(l *life) lived {
	out := lived{
		States: l.states, Installed: l.machine.Installed, Wipes: l.machine.Wipes, Writes: l.machine.Writes, Asked: map[string]int{},
	}
	for _, r := range l.Events() {
		switch e := r.Event.(type) {
		case agentcommand.Requested:
			if kind, _ := agentcommand.Find(agentcommand.Kinds, e.Kind); kind.Destructive {
				out.Asked[fmt.Sprintf("%s %s attempt %d", e.Step, e.Kind, e.Attempt)]++
			}
		case node.Moved:
			out.Failed = out.Failed || e.To == node.Failed
		}
	}
	return out
}

func TestALifeDiesAtEveryAppend(t *testing.T) {
	reference := born(t)
	reference.live(t)
	want, appends := livedOf(reference), reference.Store.Appends
	states := []node.ProvisionState{node.Ready, node.Deployed, node.Ready}
	if diff := cmp.Diff(states, want.States); diff != "" || want.Wipes != 2 || want.Writes != 1 || want.Installed || want.Failed {
		t.Fatalf("undisturbed: %+v, with %+v; %s", want, reference.Workflow().Error, diff)
	}
	for _, err := range reference.Errors {
		t.Errorf("undisturbed, a pass failed: %v", err)
	}
	t.Logf("%d appends of the control plane among %d events, in %d passes and %v of its time",
		appends, len(reference.Events()), reference.Passes, reference.Now().Sub(enginetest.Began))
	for at := 1; at <= appends; at++ {
		for _, after := range []bool{false, true} {
			l := born(t)
			l.Store.DieAt, l.Store.After = at, after
			l.live(t)
			if diff := cmp.Diff(want, livedOf(l)); diff != "" {
				t.Errorf("died at append %d (written: %v): %s", at, after, diff)
			}
		}
	}
}
