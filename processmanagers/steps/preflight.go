package steps

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
)

// Preflight looks whether the steps of a profile would find what they need, before a machine is touched. It implements
// commands.Preflight.
type Preflight struct {
	Catalog *Catalog
	Ports   Ports
	Clock   func() time.Time
}

// Check asks every step that can tell. Left out are steps with a condition, which may never run, and those that only clean up.
// Errors: INVALID_INPUT with an issue for each step that would fail; anything else: it could not be looked at.
func (p Preflight) Check(ctx context.Context, n node.State, doc profile.Document, resolved []profile.Resolved) error {
	var wrong []fault.Issue
	remedy := ""
	for _, r := range resolved {
		step, known := p.Catalog.Step(r.Action)
		if !known || step.Preflight == nil || r.When != "" || r.Phase != profile.PhaseMain {
			continue
		}
		err := step.Preflight(ctx, &Context{
			Step: workflow.Step{StepSpec: workflow.StepSpec{ID: r.ID, Action: r.Action, With: r.With}},
			Now:  p.Clock(), Node: n, Profile: doc, Ports: p.Ports,
		})
		var lacks *fault.Error
		switch code := fault.CodeOf(err); {
		case err == nil:
		case errors.As(err, &lacks) && (code == fault.NotFound || code == fault.InvalidInput || code == fault.InvalidConfig):
			wrong = append(wrong, fault.Issue{Path: "profile.steps." + r.ID, Message: lacks.Message})
			remedy = lacks.Remedy
		default:
			return err
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	e := fault.Invalid(wrong...).WithRemedy(remedy)
	e.Message = "profile " + profile.Name(doc.ID, doc.Version) + " would fail: its steps miss what they need"
	return e
}
