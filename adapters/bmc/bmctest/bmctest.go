// Package bmctest is the suite that every driver of a management controller passes: what a machine's capabilities promise,
// whatever protocol is behind them.
package bmctest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// Subject is a driver with a machine that may be switched, booted and loaded at will. It is healthy and does what it is told.
type Subject struct {
	Driver bmc.Driver
	Target bmc.Target // its password must be nowhere in what is told
	Image  string     // that may be inserted; empty: virtual media are not tried
}

// limit bounds every operation: a healthy machine needs far less.
const limit = 20 * time.Second

// Run proves a driver; begin gives a fresh subject to each test and cleans up after it.
func Run(t *testing.T, begin func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, *trial){
		"identity":                 identity,
		"power":                    power,
		"cycle and reset":          cycle,
		"graceful":                 graceful,
		"unknown action":           unknownAction,
		"boot":                     boot,
		"boot that makes no sense": bootRefused,
		"media":                    media,
		"inventory":                inventory,
		"sensors":                  sensors,
		"learned":                  learned,
		"many at once":             together,
		"cancelled":                cancelled,
		"wrong password":           wrongPassword,
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			test(t, &trial{Subject: s, t: t})
		})
	}
}

// trial is one test of a subject.
type trial struct {
	Subject
	t *testing.T
}

func (x *trial) context() context.Context {
	ctx, cancel := context.WithTimeout(x.t.Context(), limit)
	x.t.Cleanup(cancel)
	return ctx
}

// open opens the machine and closes it after the test.
func (x *trial) open() bmc.Machine {
	x.t.Helper()
	ctx := x.context()
	m, err := x.Driver.Open(ctx, x.Target)
	if err != nil {
		x.t.Fatalf("open: %v", err)
	}
	x.t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			x.t.Errorf("close: %v", err)
		}
	})
	return m
}

// capable is the machine as one of its capabilities; a driver without it has nothing to prove.
func capable[C any](x *trial) (C, bool) {
	c, ok := x.open().(C)
	return c, ok
}

func identity(t *testing.T, x *trial) {
	c, ok := capable[bmc.Identifier](x)
	if !ok {
		return
	}
	first, err := c.Identify(x.context())
	if err != nil {
		t.Fatal(err)
	}
	if first.SystemID == "" {
		t.Error("there is no system id")
	}
	second, err := c.Identify(x.context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("asked twice: %s", diff)
	}
	x.secret(first)
}

func (x *trial) set(c bmc.Powerer, a node.PowerAction, o bmc.PowerOptions) bmc.PowerResult {
	x.t.Helper()
	r, err := c.SetPower(x.context(), a, o)
	if err != nil {
		x.t.Fatalf("%s: %v", a, err)
	}
	got, err := c.Power(x.context())
	if err != nil {
		x.t.Fatalf("power after %s: %v", a, err)
	}
	if got.Power != r.Power {
		x.t.Errorf("%s gave %s; then the power is %s", a, r.Power, got.Power)
	}
	return r
}

func power(t *testing.T, x *trial) {
	c, ok := capable[bmc.Powerer](x)
	if !ok {
		return
	}
	for _, step := range []struct {
		action node.PowerAction
		want   node.Power
	}{{node.ActionOn, node.PowerOn}, {node.ActionOff, node.PowerOff}, {node.ActionOn, node.PowerOn}} {
		if r := x.set(c, step.action, bmc.PowerOptions{}); r.Power != step.want {
			t.Errorf("%s: %+v", step.action, r)
		}
		again := x.set(c, step.action, bmc.PowerOptions{})
		if again.Changed || again.Power != step.want || len(again.Sent) != 0 {
			t.Errorf("%s again is no success without a change: %+v", step.action, again)
		}
	}
}

func cycle(t *testing.T, x *trial) {
	c, ok := capable[bmc.Powerer](x)
	if !ok {
		return
	}
	for _, from := range []node.PowerAction{node.ActionOn, node.ActionOff} {
		for _, action := range []node.PowerAction{node.ActionCycle, node.ActionReset} {
			x.set(c, from, bmc.PowerOptions{})
			if r := x.set(c, action, bmc.PowerOptions{}); r.Power != node.PowerOn || !r.Changed || len(r.Sent) == 0 {
				t.Errorf("%s from %s: %+v", action, from, r)
			}
		}
	}
}

func graceful(t *testing.T, x *trial) {
	c, ok := capable[bmc.Powerer](x)
	if !ok {
		return
	}
	x.set(c, node.ActionOn, bmc.PowerOptions{})
	if r := x.set(c, node.ActionGraceful, bmc.PowerOptions{Graceful: time.Second, Force: true}); r.Power != node.PowerOff || !r.Changed {
		t.Errorf("%+v", r)
	}
	if r := x.set(c, node.ActionGraceful, bmc.PowerOptions{}); r.Changed || r.Forced {
		t.Errorf("off already: %+v", r)
	}
}

func unknownAction(_ *testing.T, x *trial) {
	if c, ok := capable[bmc.Powerer](x); ok {
		_, err := c.SetPower(x.context(), "explode", bmc.PowerOptions{})
		x.reason(err, bmc.Unsupported)
	}
}

// learned is handed in again, also when it is nonsense or another's.
func learned(t *testing.T, x *trial) {
	m := x.open()
	if c, ok := m.(bmc.Identifier); ok {
		if _, err := c.Identify(x.context()); err != nil {
			t.Fatal(err)
		}
	}
	first, second := m.Learned(), m.Learned()
	if !bytes.Equal(first, second) || !json.Valid(first) {
		t.Errorf("what was learned is not stable JSON: %s, then %s", first, second)
	}
	x.secret(first)
	for _, quirks := range []json.RawMessage{first, nil, json.RawMessage(`{`), json.RawMessage(`[1]`), json.RawMessage(`{"system":7}`)} {
		x.Target.Quirks = quirks
		x.open()
	}
}

func together(t *testing.T, x *trial) {
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			m, err := x.Driver.Open(ctx, x.Target)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			if c, ok := m.(bmc.Identifier); ok {
				if _, err := c.Identify(ctx); err != nil {
					t.Errorf("identify: %v", err)
				}
			}
			if err := m.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	all.Wait()
}

func cancelled(t *testing.T, x *trial) {
	m := x.open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, ok := m.(bmc.Powerer); ok {
		_, err := c.Power(ctx)
		if code := fault.CodeOf(err); code != fault.Unavailable && code != fault.Timeout {
			t.Errorf("a call that is cancelled gives %v", err)
		}
	}
}

func wrongPassword(t *testing.T, x *trial) {
	password := x.Target.Password
	x.Target.Password, x.Target.CredentialVersion = password+"-wrong", "wrong"
	ctx := x.context()
	m, err := x.Driver.Open(ctx, x.Target)
	if err == nil {
		defer func() { _ = m.Close(context.Background()) }()
		if c, ok := m.(bmc.Powerer); ok {
			_, err = c.Power(ctx)
		}
	}
	x.reason(err, bmc.CredentialsRejected)
	x.Target.Password, x.Target.CredentialVersion = password, "right"
	if c, ok := capable[bmc.Powerer](x); ok {
		if _, err := c.Power(ctx); err != nil {
			t.Errorf("with the right password: %v", err)
		}
	}
}

// reason checks that an error is DRIVER_ERROR with a reason, and tells no secret.
func (x *trial) reason(err error, want bmc.Reason) {
	x.t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.DriverError || f.Details["reason"] != string(want) {
		x.t.Errorf("error %v; want DRIVER_ERROR because %s", err, want)
		return
	}
	x.secret(f.Error())
	x.secret(f.Details)
}

// secret checks that what is told does not hold the password.
func (x *trial) secret(told any) {
	x.t.Helper()
	raw, err := json.Marshal(told)
	if err != nil {
		x.t.Fatal(err)
	}
	if strings.Contains(string(raw), x.Target.Password) {
		x.t.Errorf("the password is told: %s", raw)
	}
}
