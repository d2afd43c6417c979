package redfish

import (
	"context"
	"slices"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
)

// The properties of Boot that an override is made of.
const (
	bootTarget  = "BootSourceOverrideTarget"
	bootEnabled = "BootSourceOverrideEnabled"
	bootMode    = "BootSourceOverrideMode"
	bootHTTP    = "HttpBootUri"
	allowable   = "@Redfish.AllowableValues"
)

// How long a change may take to be seen in a read, in polls.
const bootPolls = 5

// bootNames are the controllers' names of a boot device, in the order in which they are tried.
var bootNames = map[bmc.BootDevice][]schemas.BootSource{
	bmc.BootNetwork:  {schemas.PxeBootSource, "UefiPxe"},
	bmc.BootDisk:     {schemas.HddBootSource, "UefiHdd"},
	bmc.BootCD:       {schemas.CdBootSource, "UsbCd", "UefiUsbCd", "CD/DVD", "UefiCd"},
	bmc.BootUEFIHTTP: {schemas.UefiHTTPBootSource},
	bmc.BootSetup:    {schemas.BiosSetupBootSource},
}

// bootFull are the vendors whose controllers reset what a change leaves out.
var bootFull = map[string]bool{"Supermicro": true, "ASRockRack": true, "AMI": true}

// deviceOf is the device that a controller's name means; empty where it is none of ours.
func deviceOf(target string) bmc.BootDevice {
	for _, d := range bmc.BootDevices {
		if slices.Contains(bootNames[d], schemas.BootSource(target)) {
			return d
		}
	}
	return ""
}

// bootView is Boot of the system, and of its settings object where boot is set there.
type bootView struct {
	sys, future       document // the two Boot objects; future may be nil
	sysTag, futureTag string
	settings          *settings
	vendor            string
}

// text reads a property where it is changed.
func (v *bootView) text(property string) string {
	if v.inSettings(property) {
		return v.future.text(property)
	}
	return v.sys.text(property)
}

func (v *bootView) inSettings(property string) bool {
	return v.settings != nil && slices.Contains(v.settings.Has, property)
}

func (v *bootView) has(property string) bool { return v.sys.has(property) || v.inSettings(property) }

// allowed lists the values of a property; empty where neither place tells.
func (v *bootView) allowed(property string) []string {
	if v.inSettings(property) {
		if out := v.future.texts(property + allowable); len(out) > 0 {
			return out
		}
	}
	if out := v.sys.texts(property + allowable); len(out) > 0 {
		return out
	}
	return v.future.texts(property + allowable)
}

func (v *bootView) mode() bmc.BootMode {
	switch schemas.BootSourceOverrideMode(v.text(bootMode)) {
	case schemas.UEFIBootSourceOverrideMode:
		return bmc.BootUEFI
	case schemas.LegacyBootSourceOverrideMode:
		return bmc.BootLegacy
	}
	return ""
}

// result is what the controller holds. A settings object may be blank again once its values have reached the system.
func (v *bootView) result() bmc.BootResult {
	r := v.override()
	if r.Device == "" && v.settings != nil {
		here := bootView{sys: v.sys}
		if now := here.override(); now.Device != "" {
			return now
		}
	}
	return r
}

func (v *bootView) override() bmc.BootResult {
	target, enabled := v.text(bootTarget), schemas.BootSourceOverrideEnabled(v.text(bootEnabled))
	r := bmc.BootResult{Target: target}
	r.Mode = v.mode()
	if enabled == schemas.DisabledBootSourceOverrideEnabled || target == "" || target == string(schemas.NoneBootSource) {
		r.Target = string(schemas.NoneBootSource)
		return r
	}
	r.Device, r.Persistent = deviceOf(target), enabled == schemas.ContinuousBootSourceOverrideEnabled
	if r.Device == bmc.BootUEFIHTTP {
		r.HTTPURI = v.text(bootHTTP)
	}
	return r
}

// readBoot reads the system and, where it has one that holds boot properties, its settings object.
func (m *machine) readBoot(ctx context.Context) (*bootView, error) {
	sys, a, err := m.system(ctx)
	if err != nil {
		return nil, err
	}
	v := &bootView{sys: sys.object("Boot"), sysTag: a.etag(), settings: m.known().Boot, vendor: m.c.vendorOf(sys)}
	if v.settings == nil {
		uri := sys.link("@Redfish.Settings", "SettingsObject")
		if uri == "" {
			return v, nil
		}
		v.settings = &settings{URI: uri}
	} else if len(v.settings.Has) == 0 {
		return v, nil // it was looked at: nothing of boot is there
	}
	doc, a, err := m.c.get(ctx, v.settings.URI)
	if err != nil {
		if ctx.Err() != nil || passing(err) {
			return nil, err
		}
		v.settings = nil
		return v, nil
	}
	v.future, v.futureTag = doc.object("Boot"), a.etag()
	found := &settings{URI: v.settings.URI}
	for _, p := range []string{bootEnabled, bootTarget, bootMode, bootHTTP} {
		if v.future.has(p) {
			found.Has = append(found.Has, p)
		}
	}
	v.settings = found
	m.learn(func(f *facts) { f.Boot = found })
	return v, nil
}

// BootOverride reads what the machine boots from next.
func (m *machine) BootOverride(ctx context.Context) (bmc.BootResult, error) {
	v, err := m.readBoot(ctx)
	if err != nil {
		return bmc.BootResult{}, err
	}
	return v.result(), nil
}
