package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// board is a driver and machine at once that notes what it is asked.
type board struct {
	target  bmc.Target
	asked   []any
	learned string
	err     error
	closed  int
}

func (b *board) Open(_ context.Context, t bmc.Target) (bmc.Machine, error) {
	b.target = t
	return full{b}, nil
}
func (b *board) Close(context.Context) error { b.closed++; return nil }

type bare struct{ *board }

func (b bare) Learned() json.RawMessage    { return json.RawMessage(b.learned) }
func (b bare) Fingerprint() string         { return "f1" }
func (b bare) Close(context.Context) error { b.closed++; return nil }

type full struct{ *board }

func (f full) Learned() json.RawMessage    { return bare(f).Learned() }
func (f full) Fingerprint() string         { return "f1" }
func (f full) Close(context.Context) error { f.closed++; return nil }
func (f full) note(what ...any) error      { f.asked = append(f.asked, what...); return f.err }
func (f full) Identify(context.Context) (bmc.Identity, error) {
	return bmc.Identity{UUID: "u"}, f.note("identify")
}
func (f full) Power(context.Context) (bmc.PowerReading, error) {
	return bmc.PowerReading{Power: node.PowerOn}, f.note("power")
}
func (f full) SetPower(_ context.Context, a node.PowerAction, o bmc.PowerOptions) (bmc.PowerResult, error) {
	return bmc.PowerResult{Power: node.PowerOff, Changed: true}, f.note(a, o.Graceful.Seconds(), o.Force)
}
func (f full) BootOverride(context.Context) (bmc.BootResult, error) {
	return bmc.BootResult{Target: "Pxe"}, f.note("boot")
}
func (f full) SetBootDevice(_ context.Context, o bmc.BootOverride) (bmc.BootResult, error) {
	return bmc.BootResult{BootOverride: o, Target: "Pxe"}, f.note(o.Device)
}
func (f full) InsertMedia(_ context.Context, image string) (bmc.Media, error) {
	return bmc.Media{Inserted: true}, f.note(image)
}
func (f full) EjectMedia(context.Context) error { return f.note("eject") }
func (f full) Inspect(context.Context) (bmc.Inventory, error) {
	return bmc.Inventory{Hardware: node.Hardware{Serial: "s"}}, f.note("inspect")
}
func (f full) Sensors(context.Context) ([]bmc.Reading, error) {
	return []bmc.Reading{{Name: "fan", Value: 1}}, f.note("sensors")
}

func orderOf(t *testing.T, kind agentcommand.KindName, payload string) Order {
	t.Helper()
	o := Order{
		Secret: func(_ context.Context, ref string) ([]byte, error) {
			if ref != "secret:1" {
				return nil, fault.New(fault.NotFound, "no such secret")
			}
			return []byte(`{"username":"root","password":"hunter2"}`), nil
		},
		Progress: func(float64, string) {},
	}
	o.ID, o.Kind, o.Payload = "cmd_1", kind, json.RawMessage(payload)
	return o
}

func invocation(concern, operation, with string) string {
	return `{"driver":"board","concern":"` + concern + `","operation":"` + operation + `","with":` + with +
		`,"bmc":{"address":"https://b","tls":{"mode":"pinned","fingerprint":"f1"},"credentialsRef":"secret:1","system":"1","quirks":{"a":1}}}`
}

func TestDriverInvoke(t *testing.T) {
	for _, c := range []struct {
		concern, operation, with string
		asked                    []any
		result                   string
	}{
		{"bmc", "identify", `{}`, []any{"identify"}, `"uuid":"u"`},
		{"power", "get", `null`, []any{"power"}, `"power":"on"`},
		{"power", "setPower", `{"action":"graceful","graceful":90,"force":true}`, []any{node.ActionGraceful, 90.0, true}, `"changed":true`},
		{"boot", "get", `{}`, []any{"boot"}, `"target":"Pxe"`},
		{"management", "setBootDevice", `{"device":"network","mode":"uefi"}`, []any{bmc.BootNetwork}, `"mode":"uefi"`},
		{"management", "getSensors", `{}`, []any{"sensors"}, `[{"name":"fan"`},
		{"virtual-media", "insert", `{"url":"https://i"}`, []any{"https://i"}, `"inserted":true`},
		{"virtual-media", "eject", `{}`, []any{"eject"}, `{}`},
		{"inspect", "outOfBand", `{}`, []any{"inspect"}, `"serial":"s"`},
	} {
		t.Run(c.concern+"."+c.operation, func(t *testing.T) {
			b := &board{learned: `{"a": 1}`}
			out, after, err := driverInvoke(map[string]bmc.Driver{"board": b})(t.Context(),
				orderOf(t, agentcommand.DriverInvoke, invocation(c.concern, c.operation, c.with)))
			check(t, err)
			got := out.(*agentcommand.Invoked)
			if diff := cmp.Diff(c.asked, b.asked); diff != "" || after != nil || !strings.Contains(string(got.Result), c.result) {
				t.Errorf("got %s; asked %s", got.Result, diff)
			}
			if got.Quirks != nil || got.Fingerprint != "f1" || b.closed != 1 {
				t.Errorf("quirks %s that were known; fingerprint %q; closed %d times", got.Quirks, got.Fingerprint, b.closed)
			}
			want := bmc.Target{
				Address: "https://b", TLS: node.TLSPolicy{Mode: "pinned", Fingerprint: "f1"}, Username: "root", Password: "hunter2",
				CredentialVersion: "secret:1", System: "1", Quirks: json.RawMessage(`{"a":1}`),
			}
			if diff := cmp.Diff(want, b.target); diff != "" {
				t.Error(diff)
			}
		})
	}
	if len(operations) != len(agentcommand.Operations) {
		t.Errorf("%d operations of %d", len(operations), len(agentcommand.Operations))
	}
	for _, o := range agentcommand.Operations {
		if operations[o] == nil {
			t.Errorf("%v can't be invoked", o)
		}
	}
}

// What was learned is told where it is new, also where the operation failed.
func TestDriverInvokeTellsWhatItLearned(t *testing.T) {
	b := &board{learned: `{"a":2}`, err: fault.New(fault.DriverError, "refused").WithDetail("reason", bmc.Refused)}
	out, _, err := driverInvoke(map[string]bmc.Driver{"board": b})(t.Context(),
		orderOf(t, agentcommand.DriverInvoke, invocation("power", "get", `{}`)))
	if got := out.(*agentcommand.Invoked); string(got.Quirks) != `{"a":2}` || fault.CodeOf(err) != fault.DriverError {
		t.Errorf("got %+v, %v", got, err)
	}
	b.err = errors.New("something odd")
	if _, _, err = driverInvoke(map[string]bmc.Driver{"board": b})(t.Context(),
		orderOf(t, agentcommand.DriverInvoke, invocation("power", "get", `{}`))); fault.CodeOf(err) != fault.DriverError {
		t.Errorf("got %v", err)
	}
}

func TestDriverInvokeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		want    fault.Code
	}{
		"an unknown driver":    {strings.Replace(invocation("power", "get", `{}`), "board", "ipmi", 1), fault.InvalidConfig},
		"an unknown operation": {invocation("power", "explode", `{}`), fault.InvalidInput},
		"an unknown field":     {strings.Replace(invocation("power", "get", `{}`), `"driver"`, `"x":1,"driver"`, 1), fault.InvalidInput},
		"an unknown input":     {invocation("power", "setPower", `{"action":"on","x":1}`), fault.InvalidInput},
		"no such action":       {invocation("power", "setPower", `{"action":"explode"}`), fault.InvalidInput},
		"no such device":       {invocation("management", "setBootDevice", `{"device":"floppy"}`), fault.InvalidInput},
		"no url":               {invocation("virtual-media", "insert", `{}`), fault.InvalidInput},
		"no such secret":       {strings.Replace(invocation("power", "get", `{}`), "secret:1", "secret:2", 1), fault.NotFound},
		"no payload":           {`null`, fault.InvalidInput},
		"two payloads":         {invocation("power", "get", `{}`) + `{}`, fault.InvalidInput},
	} {
		b := &board{}
		_, _, err := driverInvoke(map[string]bmc.Driver{"board": b})(t.Context(), orderOf(t, agentcommand.DriverInvoke, c.payload))
		if fault.CodeOf(err) != c.want || len(b.asked) > 0 || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; asked %v", name, err, b.asked)
		}
	}
}

func TestADriverWithoutTheCapability(t *testing.T) {
	op := operations[agentcommand.Operation{Concern: "virtual-media", Name: "eject"}]
	_, err := op(t.Context(), bare{&board{}}, nil)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.DriverError || f.Details["reason"] != bmc.Unsupported {
		t.Errorf("got %v", err)
	}
}
