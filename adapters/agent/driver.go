package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// driverInvoke carries out one operation on one controller.
func driverInvoke(drivers map[string]bmc.Driver) Handler {
	return func(ctx context.Context, o Order) (any, func(context.Context) error, error) {
		ask, err := decode[agentcommand.Invoke](o)
		if err != nil {
			return nil, nil, err
		}
		driver := drivers[ask.Driver]
		if driver == nil {
			return nil, nil, fault.New(fault.InvalidConfig, "this site agent has no driver %q", ask.Driver).
				WithDetail("drivers", slices.Sorted(maps.Keys(drivers)))
		}
		operation := operations[agentcommand.Operation{Concern: ask.Concern, Name: ask.Operation}]
		if operation == nil {
			return nil, nil, fault.New(fault.InvalidInput, "there is no operation %s.%s", ask.Concern, ask.Operation)
		}
		target, err := targetOf(ctx, ask.BMC, o.Secret)
		if err != nil {
			return nil, nil, err
		}
		out, err := invoke(ctx, driver, target, operation, ask)
		return out, nil, err
	}
}

// targetOf is the controller, with its credentials fetched.
func targetOf(ctx context.Context, b agentcommand.BMC, secret func(context.Context, string) ([]byte, error)) (bmc.Target, error) {
	target := bmc.Target{Address: b.Address, System: b.System, Quirks: b.Quirks, CredentialVersion: b.CredentialsRef}
	if len(b.TLS) > 0 {
		if err := json.Unmarshal(b.TLS, &target.TLS); err != nil {
			return target, fault.Invalid(fault.Issue{Path: "bmc.tls", Message: "is not a TLS policy"})
		}
	}
	value, err := secret(ctx, b.CredentialsRef)
	if err != nil {
		return target, err
	}
	var credentials struct{ Username, Password string }
	if err := json.Unmarshal(value, &credentials); err != nil {
		return target, fault.New(fault.InvalidConfig, "the controller's credentials are not of the form {username, password}")
	}
	target.Username, target.Password = credentials.Username, credentials.Password
	return target, nil
}

// closeWithin is how long giving a connection back may take after the order's own time is over.
const closeWithin = 5 * time.Second

func invoke(ctx context.Context, driver bmc.Driver, target bmc.Target, op operation, ask agentcommand.Invoke,
) (*agentcommand.Invoked, error) {
	machine, err := driver.Open(ctx, target)
	if err != nil {
		return nil, driverFault(err)
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		_ = machine.Close(last) // the driver sees to its sessions itself
	}()
	result, err := op(ctx, machine, ask.With)
	out := &agentcommand.Invoked{Fingerprint: machine.Fingerprint()}
	if learned := machine.Learned(); len(learned) > 0 && !sameJSON(learned, target.Quirks) {
		out.Quirks = learned
	}
	if err != nil {
		return out, driverFault(err)
	}
	if result != nil {
		if out.Result, err = json.Marshal(result); err != nil {
			return out, fault.Wrap(err, fault.Internal, "the driver's result can't be written as JSON")
		}
	}
	return out, nil
}

// driverFault gives an error without a code the one of drivers. A context that ended stays what it is.
func driverFault(err error) error {
	var known *fault.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(err, fault.DriverError, "the driver failed: %v", err)
}

func sameJSON(a, b json.RawMessage) bool {
	var left, right bytes.Buffer
	return json.Compact(&left, a) == nil && json.Compact(&right, b) == nil && bytes.Equal(left.Bytes(), right.Bytes())
}

// operation asks one thing of a machine; with is its input.
type operation func(ctx context.Context, m bmc.Machine, with json.RawMessage) (any, error)

// operations has every one of agentcommand.Operations.
var operations = map[agentcommand.Operation]operation{
	{Concern: "bmc", Name: "identify"}: able(func(ctx context.Context, m bmc.Identifier, _ none) (any, error) {
		return m.Identify(ctx)
	}),
	{Concern: "power", Name: "get"}: able(func(ctx context.Context, m bmc.Powerer, _ none) (any, error) {
		return m.Power(ctx)
	}),
	{Concern: "power", Name: "setPower"}: able(setPower),
	{Concern: "boot", Name: "get"}: able(func(ctx context.Context, m bmc.Booter, _ none) (any, error) {
		return m.BootOverride(ctx)
	}),
	{Concern: "management", Name: "setBootDevice"}: able(func(ctx context.Context, m bmc.Booter, with bmc.BootOverride) (any, error) {
		if !slices.Contains(bmc.BootDevices, with.Device) {
			return nil, fault.Invalid(fault.Issue{Path: "with.device", Message: "is not a boot device"})
		}
		return m.SetBootDevice(ctx, with)
	}),
	{Concern: "management", Name: "getSensors"}: able(func(ctx context.Context, m bmc.Sensor, _ none) (any, error) {
		readings, err := m.Sensors(ctx)
		return readings, err
	}),
	{Concern: "virtual-media", Name: "insert"}: able(func(ctx context.Context, m bmc.MediaLoader, with insert) (any, error) {
		if with.URL == "" {
			return nil, fault.Invalid(fault.Issue{Path: "with.url", Message: "is needed"})
		}
		return m.InsertMedia(ctx, with.URL)
	}),
	{Concern: "virtual-media", Name: "eject"}: able(func(ctx context.Context, m bmc.MediaLoader, _ none) (any, error) {
		return none{}, m.EjectMedia(ctx)
	}),
	{Concern: "inspect", Name: "outOfBand"}: able(func(ctx context.Context, m bmc.Inspector, _ none) (any, error) {
		return m.Inspect(ctx)
	}),
}

type (
	none   struct{}
	insert struct {
		URL string `json:"url"`
	}
	setPowerWith struct {
		Action   node.PowerAction     `json:"action"`
		Graceful agentcommand.Seconds `json:"graceful,omitempty"` // how long a graceful shutdown may take
		Force    bool                 `json:"force,omitempty"`
	}
)

func setPower(ctx context.Context, m bmc.Powerer, with setPowerWith) (any, error) {
	switch with.Action {
	case node.ActionOn, node.ActionOff, node.ActionGraceful, node.ActionCycle, node.ActionReset:
		return m.SetPower(ctx, with.Action, bmc.PowerOptions{Graceful: with.Graceful.Duration(), Force: with.Force})
	}
	return nil, fault.Invalid(fault.Issue{Path: "with.action", Message: "is not a power action"})
}

// able makes an operation of what a capability can do. A machine without the capability refuses before anything is sent.
func able[Capability, With any](do func(context.Context, Capability, With) (any, error)) operation {
	return func(ctx context.Context, m bmc.Machine, with json.RawMessage) (any, error) {
		capable, ok := m.(Capability)
		if !ok {
			return nil, fault.New(fault.DriverError, "the driver can't do this").WithDetail("reason", bmc.Unsupported)
		}
		var input With
		in := json.NewDecoder(strings.NewReader(cmp.Or(string(with), "{}")))
		in.DisallowUnknownFields()
		if err := in.Decode(&input); err != nil {
			return nil, fault.Invalid(fault.Issue{Path: "with", Message: err.Error()})
		}
		return do(ctx, capable, input)
	}
}
