package steps

import (
	"context"
	"encoding/json"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
)

// None is the input of a step that has none.
type None struct{}

// Define makes a control-plane step. I is a struct: what with may hold is derived from its fields, see Checker and the tags
// json, enum and doc. NewCatalog says what is wrong with the definition.
func Define[I any](spec profile.Spec, run func(ctx context.Context, c *Context, in I) (any, error)) Step {
	step := Step{Spec: described[I](spec)}
	if step.RunsOn == "" {
		step.RunsOn = profile.OnControlPlane
	}
	if run != nil {
		step.Run = func(ctx context.Context, c *Context) (any, error) {
			in, err := inputOf[I](c)
			if err != nil {
				return nil, err
			}
			return run(ctx, c, in)
		}
	}
	return step
}

// WithPreflight gives a step what it can tell before a machine is touched. See Step.Preflight; I is the step's input.
func WithPreflight[I any](step Step, look func(ctx context.Context, c *Context, in I) error) Step {
	step.Preflight = func(ctx context.Context, c *Context) error {
		in, err := inputOf[I](c)
		if err != nil {
			return err
		}
		return look(ctx, c, in)
	}
	return step
}

// Hooks are what the control plane adds to an agent step; nil: nothing. See Step.
type Hooks[I any] struct {
	Payload func(ctx context.Context, c *Context, in I) (payload any, err error)
	Settled func(ctx context.Context, c *Context, in I, done Awaited) (result any, err error)
}

// Agent makes an agent step: one agent command of spec.Command, its payload the input or what the hook makes of it.
func Agent[I any](spec profile.Spec, h Hooks[I]) Step {
	step := Step{Spec: described[I](spec)}
	if h.Payload != nil {
		step.Payload = func(ctx context.Context, c *Context) (any, error) {
			in, err := inputOf[I](c)
			if err != nil {
				return nil, err
			}
			return h.Payload(ctx, c, in)
		}
	}
	if h.Settled != nil {
		step.Settled = func(ctx context.Context, c *Context, done Awaited) (any, error) {
			in, err := inputOf[I](c)
			if err != nil {
				return nil, err
			}
			return h.Settled(ctx, c, in, done)
		}
	}
	return step
}

func described[I any](spec profile.Spec) profile.Spec {
	spec.Input = schema[I]()
	spec.Check = func(with json.RawMessage) []fault.Issue {
		_, wrong := decode[I](with)
		return wrong
	}
	return spec
}

// inputOf decodes an input that was checked when the workflow was created: a definition may have become stricter since.
func inputOf[I any](c *Context) (I, error) {
	in, wrong := decode[I](c.Step.With)
	if len(wrong) > 0 {
		return in, fault.New(fault.InvalidConfig, "the input of step %s does not fit its definition any more", c.Step.ID).
			WithDetail("path", wrong[0].Path).WithDetail("reason", wrong[0].Message).
			WithRemedy("correct the profile and start a new workflow")
	}
	return in, nil
}
