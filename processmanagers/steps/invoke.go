package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// Invoke has the site agent's driver do one operation on the machine's controller, once per name and attempt, and gives the
// operation's result. What the driver learned about the controller is stored. NotReady and errors: as AwaitCommand;
// INVALID_STATE for a machine without a BMC.
func (c *Context) Invoke(ctx context.Context, concern, operation string, with any, name string) (json.RawMessage, error) {
	done, err := c.await(ctx, Order{
		Kind: agentcommand.DriverInvoke, Role: agentcommand.RoleSite, Name: name,
		Make: func() (any, error) { return c.invocation(concern, operation, with) },
	})
	if err != nil {
		return nil, err
	}
	var asked agentcommand.Invoke
	var told agentcommand.Invoked
	if err := errors.Join(json.Unmarshal(done.Payload, &asked), json.Unmarshal(done.Result, &told)); err != nil {
		return nil, badAnswer(err, concern+"."+operation)
	}
	return told.Result, c.learn(ctx, asked, told)
}

// invoke is Invoke with a decoded result.
func invoke[T any](ctx context.Context, c *Context, concern, operation string, with any, name string) (result T, err error) {
	raw, err := c.Invoke(ctx, concern, operation, with, name)
	if err != nil || len(raw) == 0 {
		return result, err
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return result, badAnswer(err, concern+"."+operation)
	}
	return result, nil
}

func badAnswer(err error, what string) error {
	return fault.Wrap(err, fault.DriverError, "the agent's result of %s can't be read", what).
		WithDetail("reason", "bad-answer")
}

func (c *Context) invocation(concern, operation string, with any) (agentcommand.Invoke, error) {
	at := c.Node.BMC
	if at == nil {
		return agentcommand.Invoke{}, fault.New(fault.InvalidState, "the node has no BMC").
			WithRemedy("enroll the machine with its BMC, or use a profile for machines without one")
	}
	policy := at.TLS
	if policy.Mode == node.TLSPinOnFirstUse && policy.Fingerprint == "" {
		policy.Fingerprint = c.Node.Learned.Fingerprint
	}
	trust, err := json.Marshal(policy)
	if err != nil {
		return agentcommand.Invoke{}, err
	}
	input, err := json.Marshal(with)
	if err != nil {
		return agentcommand.Invoke{}, err
	}
	if bytes.Equal(input, []byte("null")) {
		input = nil
	}
	return agentcommand.Invoke{
		Driver: c.driver(concern), Concern: concern, Operation: operation, With: input,
		BMC: agentcommand.BMC{
			Address: at.Address, TLS: trust, CredentialsRef: string(at.Credentials),
			System: c.Node.Learned.System, Quirks: c.Node.Learned.Quirks,
		},
	}, nil
}

// driver is the one that the profile binds to the concern, else the node's.
func (c *Context) driver(concern string) string {
	if bound := c.Profile.Drivers[concern]; bound != "" {
		return bound
	}
	return c.Node.BMC.Driver
}

// learn stores what is new about the controller, and has the step's later agent commands know it. What was learned on top of
// an older state than the present one is not news: a step that runs again finds its earlier agent commands.
func (c *Context) learn(ctx context.Context, asked agentcommand.Invoke, told agentcommand.Invoked) error {
	news := node.BMCLearned{Quirks: told.Quirks}
	if !bytes.Equal(asked.BMC.Quirks, c.Node.Learned.Quirks) {
		news.Quirks = nil
	}
	if c.Node.BMC != nil && c.Node.BMC.Pins() {
		news.Fingerprint = told.Fingerprint
	}
	return c.learned(ctx, news)
}

func (c *Context) learned(ctx context.Context, news node.BMCLearned) error {
	known := c.Node.Learned
	if known.With(news).Equal(known) {
		return nil
	}
	if c.Ports.Nodes == nil {
		return c.lacks("nodes")
	}
	if err := c.Ports.Nodes.LearnBMC(ctx, c.Node.ID, news.Fingerprint, news.Quirks, news.System); err != nil {
		return err
	}
	c.Node.Learned = known.With(news)
	return nil
}
