package quirks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// TestAnything puts values of every type in the place of properties, anywhere in the tree. Whatever the driver makes of
// it, it neither panics nor hangs, its errors are faults, and what it tells keeps its form.
func TestAnything(t *testing.T) {
	t.Parallel()
	r := start(t)
	var paths []string
	for path := range r.docs {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	rapid.Check(t, func(rt *rapid.T) {
		r.Machine()
		for range rapid.IntRange(1, 6).Draw(rt, "changes") {
			path := rapid.SampledFrom(paths).Draw(rt, "path")
			var names []string
			for name := range r.Get(path) {
				names = append(names, name)
			}
			slices.Sort(names)
			r.Edit(path, Doc{rapid.SampledFrom(names).Draw(rt, "property"): anything(2).Draw(rt, "value")})
		}
		tryAll(rt, r)
	})
}

// anything draws a JSON value.
func anything(depth int) *rapid.Generator[any] {
	simple := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), asAny), rapid.Map(rapid.Float64Range(-1e18, 1e18), asAny),
		rapid.Map(rapid.SampledFrom([]string{"", "On", "3", "/", System, Root, "#", "//x", "http://192.0.2.1/x", "None", "00:00", "\x00"}), asAny),
		rapid.Map(rapid.String(), asAny),
	)
	if depth == 0 {
		return simple
	}
	inner := anything(depth - 1)
	return rapid.OneOf(simple, rapid.Map(rapid.SliceOfN(inner, 0, 3), asAny), rapid.Custom(func(rt *rapid.T) any {
		d := Doc{}
		for _, name := range []string{"@odata.id", "target", "Members", "MACAddress", "SettingsObject"} {
			if rapid.Bool().Draw(rt, name) {
				d[name] = inner.Draw(rt, "value of "+name)
			}
		}
		return d
	}))
}

func asAny[T any](v T) any { return v }

// tryAll calls everything that a fresh driver can do.
func tryAll(rt *rapid.T, r *rig) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
	defer cancel()
	driver := redfish.New(redfish.Options{Poll: time.Millisecond})
	defer func() {
		if err := driver.Close(ctx); err != nil {
			rt.Errorf("closing the driver: %v", err)
		}
	}()
	check := func(what string, err error) {
		var f *fault.Error
		if err != nil && (!errors.As(err, &f) || !slices.ContainsFunc(fault.Codes, func(c fault.CodeInfo) bool { return c.Code == f.Code }) || f.Code == fault.Internal) {
			rt.Errorf("%s: %T %v", what, err, err)
		}
	}
	opened, err := driver.Open(ctx, r.target)
	check("open", err)
	if err != nil {
		return
	}
	m := opened.(machine)
	_, err = m.Identify(ctx)
	check("identify", err)
	found, err := m.Inspect(ctx)
	check("inspect", err)
	for _, n := range found.Hardware.NICs {
		if normal, err := claim.MAC(n.MAC); err != nil || normal != n.MAC {
			rt.Errorf("%q is told as a MAC address", n.MAC)
		}
	}
	_, err = m.Sensors(ctx)
	check("sensors", err)
	off, err := m.SetPower(ctx, node.ActionOff, bmc.PowerOptions{})
	check("power off", err)
	if err == nil && fmt.Sprint(r.Get(System)["PowerState"]) != "Off" {
		rt.Errorf("power off: %+v with the machine %v", off, r.Get(System)["PowerState"])
	}
	_, err = m.SetBootDevice(ctx, network)
	check("boot", err)
	_, err = m.InsertMedia(ctx, image)
	check("insert", err)
	check("eject", m.EjectMedia(ctx))
	check("close", m.Close(ctx))
}
