package redfish

import (
	"cmp"
	"context"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/domain/node"
)

// firmware is what starts the machine, and how. Who made it is told by no property of the standard.
func (t *taking) firmware(ctx context.Context) {
	out := node.Firmware{
		Version: t.sys.known("BiosVersion"),
		Date: cmp.Or(t.sys.known("Oem", "Dell", "DellSystem", "BIOSReleaseDate"),
			t.sys.known("Oem", "Hpe", "Bios", "Current", "Date")),
	}
	enforced := t.secureBoot(ctx)
	out.BootMode = t.bootMode(ctx, enforced)
	if out.BootMode != node.BootBIOS {
		out.SecureBoot = enforced
	}
	if out != (node.Firmware{}) {
		t.inv.Hardware.Firmware = &out
	}
}

// secureBoot is whether the present boot let signed programs only start, not what is set for the next one.
func (t *taking) secureBoot(ctx context.Context) *bool {
	path := t.sys.link("SecureBoot")
	if path == "" {
		return nil
	}
	enforced := true
	switch schemas.SecureBootCurrentBootType(t.read(ctx, path).text("SecureBootCurrentBoot")) {
	case schemas.EnabledSecureBootCurrentBootType:
	case schemas.DisabledSecureBootCurrentBootType:
		enforced = false
	default:
		return nil
	}
	return &enforced
}

// bootMode is how the machine is set to boot. UEFI is believed where it stands in the boot override; Legacy is not: some
// controllers fall back to that. Where the override does not tell, the settings of the firmware may.
func (t *taking) bootMode(ctx context.Context, enforced *bool) node.BootMode {
	const mode = "BootSourceOverrideMode"
	uefi := string(schemas.UEFIBootSourceOverrideMode)
	only := t.sys.texts("Boot", mode+"@Redfish.AllowableValues")
	switch path := t.sys.link("Bios"); {
	case enforced != nil && *enforced, strings.EqualFold(t.sys.text("Boot", mode), uefi),
		len(only) == 1 && strings.EqualFold(only[0], uefi):
		return node.BootUEFI
	case path != "":
		return setMode(t.read(ctx, path).object("Attributes"))
	}
	return ""
}

// setMode is what the firmware's settings say of the boot mode. Makers name them BootMode, BootModeSelect,
// BootModes_SystemBootMode and so on, and their values Uefi, UEFIMode, Bios, LegacyBios, Legacy, Dual.
func setMode(attributes document) (mode node.BootMode) {
	for name := range attributes {
		if !strings.HasPrefix(strings.ToLower(name), "bootmode") {
			continue
		}
		value := strings.ToLower(attributes.text(name))
		var told node.BootMode
		uefi, legacy := strings.Contains(value, "uefi"), strings.Contains(value, "legacy") || value == "bios"
		switch {
		case uefi == legacy: // neither, or both at once
			continue
		case uefi:
			told = node.BootUEFI
		default:
			told = node.BootBIOS
		}
		if mode != "" && mode != told {
			return ""
		}
		mode = told
	}
	return mode
}

// tpmVersions are the kinds of module that are TPMs.
var tpmVersions = map[schemas.InterfaceType]string{
	schemas.TPM12InterfaceType: "1.2",
	schemas.TPM20InterfaceType: "2.0",
}

// tpm is the first module that is there and is a TPM. One of a kind that is not told counts where it is said to work.
func tpm(sys document) *node.TPM {
	for _, module := range sys.objects("TrustedModules") {
		kind, state := schemas.InterfaceType(module.text("InterfaceType")), schemas.State(module.text("Status", "State"))
		version, known := tpmVersions[kind]
		if state != schemas.AbsentState && (known || kind == "" && state == schemas.EnabledState) {
			return &node.TPM{Version: version, FirmwareVersion: module.known("FirmwareVersion")}
		}
	}
	return nil
}
