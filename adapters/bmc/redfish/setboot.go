package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
)

// booting is one change of the boot device under way.
type booting struct {
	m    *machine
	o    bmc.BootOverride
	v    *bootView
	mode string            // before the change; it stays, unless another was asked for
	want map[string]string // property → value
	note []string
}

// SetBootDevice chooses the boot device. The read back decides, whatever the controller answered.
func (m *machine) SetBootDevice(ctx context.Context, o bmc.BootOverride) (bmc.BootResult, error) {
	if err := checkBoot(o); err != nil {
		return bmc.BootResult{}, err
	}
	v, err := m.readBoot(ctx)
	if err != nil {
		return bmc.BootResult{}, err
	}
	b := &booting{m: m, o: o, v: v, mode: v.text(bootMode)}
	if err := b.plan(); err != nil {
		return bmc.BootResult{}, err
	}
	if err := b.apply(ctx); err != nil {
		return b.v.result(), err
	}
	r := b.v.result()
	if o.HTTPURI != "" && r.HTTPURI == "" {
		r.HTTPURI = o.HTTPURI
	}
	r.Note = strings.Join(b.note, "; ")
	return r, nil
}

// checkBoot refuses what no controller can do, before anything is sent.
func checkBoot(o bmc.BootOverride) error {
	switch {
	case !slices.Contains(bmc.BootDevices, o.Device):
		return broken(bmc.Unsupported, "%q is no boot device", o.Device)
	case o.Mode != "" && o.Mode != bmc.BootUEFI && o.Mode != bmc.BootLegacy:
		return broken(bmc.Unsupported, "%q is no boot mode", o.Mode)
	case o.Device == bmc.BootUEFIHTTP && o.Mode == bmc.BootLegacy:
		return broken(bmc.Unsupported, "UEFI HTTP boot needs the mode uefi")
	case o.Device != bmc.BootUEFIHTTP && o.HTTPURI != "":
		return broken(bmc.Unsupported, "a boot URI is for UEFI HTTP boot only")
	}
	return nil
}

// plan turns the wish into properties: exactly those that were asked for, and those that the controller would reset.
func (b *booting) plan() error {
	target, err := b.target()
	if err != nil {
		return err
	}
	b.want = map[string]string{bootTarget: target, bootEnabled: string(schemas.OnceBootSourceOverrideEnabled)}
	if b.o.Persistent {
		if err := b.persist(); err != nil {
			return err
		}
	}
	switch {
	case b.o.HTTPURI != "":
		b.want[bootHTTP] = b.o.HTTPURI
	case b.o.Device == bmc.BootUEFIHTTP && b.v.text(bootHTTP) != "":
		b.note = append(b.note, "the controller keeps the boot URI of an earlier override")
	}
	known := b.m.known()
	switch {
	case !b.v.has(bootMode):
		if b.o.Mode != "" {
			b.note = append(b.note, "the controller does not tell its boot mode, so that it was left as it is")
		}
	case b.o.Mode != "":
		return b.setMode()
	case (known.BootFull || bootFull[b.v.vendor]) && b.mode != "":
		b.want[bootMode] = b.mode
	}
	return nil
}

func (b *booting) setMode() error {
	mode := string(schemas.UEFIBootSourceOverrideMode)
	if b.o.Mode == bmc.BootLegacy {
		mode = string(schemas.LegacyBootSourceOverrideMode)
	}
	if offered := b.v.allowed(bootMode); len(offered) > 0 && !slices.Contains(offered, mode) {
		return broken(bmc.Unsupported, "the controller does not offer the boot mode").
			WithDetail("wanted", mode).WithDetail("found", offered)
	}
	b.want[bootMode] = mode
	return nil
}

// persist asks for an override that stays, where the controller has that.
func (b *booting) persist() error {
	offered := b.v.allowed(bootEnabled)
	always := string(schemas.ContinuousBootSourceOverrideEnabled)
	if b.m.known().BootOnce || (len(offered) > 0 && !slices.Contains(offered, always)) {
		b.onlyOnce()
		return nil
	}
	b.want[bootEnabled] = always
	return nil
}

func (b *booting) onlyOnce() {
	b.want[bootEnabled] = string(schemas.OnceBootSourceOverrideEnabled)
	b.note = append(b.note, "the controller has no persistent override: it is set once and must be set again before each reboot")
}

// target is the controller's name of the device: the first that it offers, or the usual one where it does not tell.
func (b *booting) target() (string, error) {
	names := slices.Clone(bootNames[b.o.Device])
	if b.o.Device == bmc.BootCD && b.v.vendor == "Supermicro" {
		names = []schemas.BootSource{"UsbCd", "UefiUsbCd", schemas.CdBootSource, "CD/DVD"} // virtual media are USB drives there
	}
	offered := b.v.allowed(bootTarget)
	if len(offered) == 0 {
		return string(bootNames[b.o.Device][0]), nil
	}
	for _, n := range names {
		if slices.Contains(offered, string(n)) {
			return string(n), nil
		}
	}
	return "", broken(bmc.Unsupported, "the controller does not offer the boot device").
		WithDetail("wanted", string(b.o.Device)).WithDetail("found", offered)
}

// apply sends until the override is read back, mending what the controller finds fault with.
func (b *booting) apply(ctx context.Context) error {
	p := b.m.c.d.pace()
	for tries := 0; ; tries++ {
		r, a, failed := b.send(ctx)
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if failed != nil && a == nil && !passing(failed) && reasonOf(failed) != bmc.TaskFailed {
			return failed
		}
		done, err := b.readBack(ctx, failed == nil)
		if fault.CodeOf(err) == fault.Timeout && failed == nil {
			return b.notApplied(ctx, r, nil, nil) // it was taken, and not seen in time
		}
		if err != nil || done {
			return err
		}
		again := tries < busyTries
		switch {
		case failed == nil: // taken, and not done
			again = again && b.restoreMode()
		case reasonOf(failed) == bmc.TaskFailed:
			again = false
		case a == nil || transientBoot(a):
		default:
			again = again && b.mend(a)
		}
		if !again {
			return b.notApplied(ctx, r, a, failed)
		}
		var pause = firstPause
		if a != nil {
			pause = a.retryAfter(b.m.c.d.o.Now())
		}
		if pause > patience || !leaves(ctx, pause) {
			return b.notApplied(ctx, r, a, failed)
		}
		if p.wait(ctx, pause) != nil {
			return ended(ctx)
		}
	}
}

// send patches each property where it belongs: in the settings object those that are there, the rest on the system.
func (b *booting) send(ctx context.Context) (request, *answer, error) {
	var here, there map[string]any
	for property, value := range b.want {
		if b.v.inSettings(property) {
			there = with(there, property, value)
		} else {
			here = with(here, property, value)
		}
	}
	r := request{method: http.MethodPatch, path: b.m.known().System}
	for _, part := range []struct {
		boot map[string]any
		path string
		tag  string
	}{{there, b.settingsURI(), b.v.futureTag}, {here, r.path, b.v.sysTag}} {
		if part.boot == nil {
			continue
		}
		r.path = part.path
		a, err := b.m.c.patch(ctx, part.path, map[string]any{"Boot": part.boot}, part.tag)
		if err != nil {
			return r, nil, err
		}
		if a.failed() {
			return r, a, b.m.c.refusal(r, a)
		}
		if err := b.m.c.settle(ctx, a); err != nil {
			return r, nil, err
		}
	}
	return r, nil, nil
}

func (b *booting) settingsURI() string {
	if b.v.settings == nil {
		return ""
	}
	return b.v.settings.URI
}

func with(m map[string]any, key string, value any) map[string]any {
	if m == nil {
		m = map[string]any{}
	}
	m[key] = value
	return m
}

// readBack compares what the controller holds with what was sent. After a success it is given a moment to show it.
func (b *booting) readBack(ctx context.Context, patient bool) (bool, error) {
	p := b.m.c.d.pace()
	wait, cancel := context.WithTimeout(ctx, bootPolls*b.m.c.d.o.Poll)
	defer cancel()
	for {
		v, err := b.m.readBoot(ctx)
		switch {
		case err == nil:
			b.v = v
			if b.applied() {
				return true, nil
			}
			if b.flipped() {
				return false, nil
			}
		case ctx.Err() != nil:
			return false, ended(ctx)
		case !passing(err):
			return false, err
		}
		if !patient || p.wait(wait, 0) != nil {
			return false, nil
		}
	}
}

// applied reports whether all that was wanted is held, and the mode is not another than before.
func (b *booting) applied() bool {
	for property, want := range b.want {
		got := b.v.text(property)
		if got == want || b.v.sys.text(property) == want {
			continue
		}
		if property == bootHTTP && got == "" {
			continue // not every controller tells it
		}
		return false
	}
	return !b.flipped()
}

// flipped reports a boot mode that changed though nobody asked.
func (b *booting) flipped() bool {
	_, asked := b.want[bootMode]
	return !asked && b.mode != "" && b.v.text(bootMode) != "" && b.v.text(bootMode) != b.mode
}

// restoreMode sends everything from now on, where the last change altered what was left out.
func (b *booting) restoreMode() bool {
	if !b.flipped() {
		return false
	}
	b.want[bootMode] = b.mode
	b.m.learn(func(f *facts) { f.BootFull = true })
	return true
}

// transientBoot reports a refusal that passes by itself.
func transientBoot(a *answer) bool {
	return a.status == 409 || a.status == 429 || a.status == 503 || a.status == 504 || inPOST(a)
}

func inPOST(a *answer) bool {
	return a.says("UnableToModifyDuringSystemPOST", "during POST", "system POST", "in POST")
}

// mend changes the plan after a refusal; false where nothing is left to try.
func (b *booting) mend(a *answer) bool {
	switch {
	case a.says("OperationSupportedInFutureState"):
		return b.useSettings(a)
	case b.v.settings != nil && len(b.v.settings.Has) > 0 && a.says("PropertyNotWritable", "PropertyUnknown", "ActionNotSupported") ||
		a.status == 405:
		return b.leaveSettings()
	case b.want[bootEnabled] == string(schemas.ContinuousBootSourceOverrideEnabled) && a.says(bootEnabled, "Continuous"):
		b.onlyOnce()
		b.m.learn(func(f *facts) { f.BootOnce = true })
		return true
	case b.want[bootMode] != "" && b.o.Mode == "" && a.says(bootMode):
		delete(b.want, bootMode)
		return true
	case b.want[bootEnabled] == string(schemas.ContinuousBootSourceOverrideEnabled) && a.status == 400 && !pendingJob(a):
		b.onlyOnce()
		return true
	}
	return false
}

// useSettings sends to the settings object from now on: the one that the refusal names, or the usual one.
func (b *booting) useSettings(a *answer) bool {
	uri := b.settingsURI()
	for _, m := range a.messages() {
		for _, arg := range m.args {
			if l := localPath(arg); l != "" && canonical(l) != canonical(b.m.known().System) {
				uri = l
			}
		}
	}
	if uri == "" {
		uri = strings.TrimRight(b.m.known().System, "/") + "/SD"
	}
	if b.v.settings != nil && len(b.v.settings.Has) > 0 && b.v.settings.URI == uri {
		return false
	}
	s := &settings{URI: uri, Has: []string{bootEnabled, bootTarget, bootMode, bootHTTP}}
	b.v.settings = s
	b.m.learn(func(f *facts) { f.Boot = s })
	return true
}

// leaveSettings sends to the system from now on.
func (b *booting) leaveSettings() bool {
	if b.v.settings == nil || len(b.v.settings.Has) == 0 {
		return false
	}
	s := &settings{URI: b.v.settings.URI}
	b.v.settings = s
	b.m.learn(func(f *facts) { f.Boot = s })
	return true
}

// notApplied is the fault of a change that is not there.
func (b *booting) notApplied(ctx context.Context, r request, a *answer, failed error) error {
	if a != nil && pendingJob(a) {
		return b.m.blockedByJob(ctx, a)
	}
	if a != nil && (inPOST(a) || a.status == 409) {
		e := notReady(max(a.retryAfter(b.m.c.d.o.Now()), patience), "the controller takes no boot settings now: it answers %d to %s %s",
			a.status, r.method, r.path)
		id, text := b.m.c.words(a)
		return e.WithDetail("messageId", id).WithDetail("message", text)
	}
	if failed != nil {
		return failed
	}
	got := map[string]string{}
	for property := range b.want {
		got[property] = b.v.text(property)
	}
	if b.flipped() {
		b.want[bootMode], got[bootMode] = b.mode, b.v.text(bootMode)
	}
	return broken(bmc.BootOverrideNotApplied, "the controller took the boot override and does not hold it").
		WithDetail("wanted", b.want).WithDetail("found", got)
}
