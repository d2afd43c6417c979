package steps

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// operation is one thing that a driver is asked to do; name tells it from the step's other agent commands.
type operation struct {
	concern, verb string
	with          any
	name          string
	timeout       time.Duration // as Order's
	system        string        // of the controller; empty: the one that was learned
}

// Invoke has the site agent's driver do one operation on the machine's controller, once per name and attempt, and gives the
// operation's result. What the driver learned about the controller is stored. NotReady and errors: as AwaitCommand;
// INVALID_STATE for a machine without a BMC.
func (c *Context) Invoke(ctx context.Context, concern, verb string, with any, name string) (json.RawMessage, error) {
	result, _, err := c.drive(ctx, operation{concern: concern, verb: verb, with: with, name: name})
	return result, err
}

func (c *Context) drive(ctx context.Context, o operation) (json.RawMessage, agentcommand.State, error) {
	done, err := c.send(ctx, o)
	if again, renamed := c.renamed(done, err, o); renamed {
		done, err = c.send(ctx, again)
	}
	if err != nil {
		return nil, done, err
	}
	var asked agentcommand.Invoke
	var told agentcommand.Invoked
	if err := errors.Join(json.Unmarshal(done.Payload, &asked), json.Unmarshal(done.Result, &told)); err != nil {
		return nil, done, badAnswer(err, o.concern+"."+o.verb)
	}
	return told.Result, done, c.learn(ctx, asked, told)
}

func (c *Context) send(ctx context.Context, o operation) (agentcommand.State, error) {
	return c.await(ctx, Order{
		Kind: agentcommand.DriverInvoke, Role: agentcommand.RoleSite, Name: o.name, Timeout: o.timeout,
		Make: func() (any, error) { return c.invocation(o) },
	})
}

// renamed gives what to ask once more where the controller has no system of the id that was learned: an update of its firmware may
// give it another. The machine itself is known by its serial number or UUID. Neither is learned, as both are missing on some controllers
// while the machine is off: bmc.verify learns the new id.
func (c *Context) renamed(failed agentcommand.State, err error, o operation) (again operation, is bool) {
	var known *fault.Error
	if !errors.As(err, &known) || reasonOf(known) != reasonNoSystem {
		return o, false
	}
	var asked agentcommand.Invoke
	if json.Unmarshal(failed.Payload, &asked) != nil || c.ownName() == "" || asked.BMC.System == c.ownName() {
		return o, false
	}
	o.name, o.system = strings.TrimPrefix(o.name+"-by-name", "-"), c.ownName()
	return o, true
}

// ownName is what the machine's controller has told of it that no firmware changes; empty: nothing.
func (c *Context) ownName() string {
	if known := c.Node.Hardware.OutOfBand; known != nil {
		return cmp.Or(known.Serial, known.UUID)
	}
	return ""
}

// invoke is drive with a decoded result.
func invoke[T any](ctx context.Context, c *Context, o operation) (result T, done agentcommand.State, err error) {
	raw, done, err := c.drive(ctx, o)
	if err != nil || len(raw) == 0 {
		return result, done, err
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return result, done, badAnswer(err, o.concern+"."+o.verb)
	}
	return result, done, nil
}

func badAnswer(err error, what string) error {
	return fault.Wrap(err, fault.DriverError, "the agent's result of %s can't be read", what).
		WithDetail("reason", "bad-answer")
}

func (c *Context) invocation(o operation) (agentcommand.Invoke, error) {
	at := c.Node.BMC
	if at == nil {
		return agentcommand.Invoke{}, fault.New(fault.InvalidState, "the node has no BMC").
			WithRemedy("enroll the machine with its BMC, or use a profile for machines without one")
	}
	policy := at.TLS
	if at.Pins() {
		policy.Fingerprint = c.Node.PinnedCertificate()
	}
	trust, err := json.Marshal(policy)
	if err != nil {
		return agentcommand.Invoke{}, err
	}
	input, err := json.Marshal(o.with)
	if err != nil {
		return agentcommand.Invoke{}, err
	}
	if bytes.Equal(input, []byte("null")) {
		input = nil
	}
	return agentcommand.Invoke{
		Driver: c.driver(o.concern), Concern: o.concern, Operation: o.verb, With: input,
		BMC: agentcommand.BMC{
			Address: at.Address, TLS: trust, CredentialsRef: string(at.Credentials),
			System: cmp.Or(o.system, c.Node.Learned.System), Quirks: c.Node.Learned.Quirks,
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
