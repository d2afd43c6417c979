package redfish

import (
	"cmp"
	"context"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/domain/node"
)

// drives reads Storage and what the chassis refers to, else SimpleStorage. A drive that tells nothing, or does not answer,
// is listed all the same: it may hold data.
func (t *taking) drives(ctx context.Context) {
	var s source
	var links []string
	seen := map[string]string{} // and how drives are attached, where the unit takes one kind only
	for _, unit := range t.collection(ctx, &s, t.sys.link("Storage")) {
		s.missed = s.missed || !unit.has("Drives")
		attached := unitTransport(unit)
		for _, l := range unit.links("Drives") {
			if _, twice := seen[canonical(l)]; !twice {
				seen[canonical(l)] = attached
				links = append(links, l)
			}
		}
	}
	t.addDrives(ctx, &s, links, seen, false)
	var more []string
	for _, chassis := range t.chassis(ctx) {
		for _, l := range chassis.links("Links", "Drives") {
			if _, twice := seen[canonical(l)]; !twice {
				seen[canonical(l)] = ""
				more = append(more, l)
			}
		}
	}
	t.addDrives(ctx, &s, more, nil, len(links) > 0)
	links = append(links, more...)
	if len(links) == 0 {
		for _, unit := range t.collection(ctx, &s, t.sys.link("SimpleStorage")) {
			for _, d := range unit.objects("Devices") {
				if d.text("Status", "State") != string(schemas.AbsentState) {
					s.missed = !t.addDrive(d, d.text("Name"), "") || s.missed
				}
			}
		}
	}
	t.inv.Sources["drives"] = s.String()
}

// addDrives lists drives by their links, with how they are attached where that is known otherwise. named leaves out those
// without a name of their own: they may be listed already.
func (t *taking) addDrives(ctx context.Context, s *source, links []string, attached map[string]string, named bool) {
	for i, d := range t.readAll(ctx, links) {
		s.found = true
		if d == nil {
			s.missed = true
			t.note("drive " + lastName(links[i]) + " did not answer")
		}
		if named && d.text("SerialNumber") == "" && wwn(d) == "" {
			continue
		}
		if d.text("Status", "State") != string(schemas.AbsentState) {
			s.missed = !t.addDrive(d, lastName(links[i]), attached[canonical(links[i])]) || s.missed
		}
	}
}

// addDrive lists one drive and reports whether its size is known. Null is not zero: a drive may hold data all the same.
func (t *taking) addDrive(d document, name, attached string) (sized bool) {
	disk := node.Disk{
		Model: d.label("Model"), Serial: d.label("SerialNumber"), Bytes: d.whole("CapacityBytes"), WWN: wwn(d),
		Transport: cmp.Or(driveTransport(d), attached), Rotational: rotational(d),
	}
	if disk.WWN == "" && disk.Serial == "" {
		disk.Path = name // all that tells it from another
	}
	if disk.Bytes == 0 {
		t.note("drive " + name + " does not tell its size")
	}
	for _, old := range t.inv.Hardware.Disks {
		if old.Key() == disk.Key() {
			return disk.Bytes > 0
		}
	}
	t.inv.Hardware.Disks = append(t.inv.Hardware.Disks, disk)
	return disk.Bytes > 0
}

// transports are the protocols of local disks, under the names that inventories give them.
var transports = map[schemas.Protocol]string{
	schemas.NVMeProtocol: "nvme",
	schemas.SASProtocol:  "sas",
	schemas.SATAProtocol: "sata",
	schemas.USBProtocol:  "usb",
	schemas.EMMCProtocol: "mmc",
}

// driveTransport is how the drive is attached. Dell's controllers tell the bus of an NVMe drive, and beside it what is
// spoken there.
func driveTransport(d document) string {
	protocol := schemas.Protocol(d.text("Protocol"))
	spoken := d.text("Oem", "Dell", "DellPCIeSSD", "DeviceProtocol")
	if protocol == schemas.PCIeProtocol && strings.HasPrefix(spoken, string(schemas.NVMeProtocol)) {
		protocol = schemas.NVMeProtocol
	}
	return transports[protocol]
}

// unitTransport is how every drive of a storage unit is attached, where its controllers speak to one kind only.
func unitTransport(unit document) (only string) {
	for _, controller := range unit.objects("StorageControllers") {
		for _, p := range controller.texts("SupportedDeviceProtocols") {
			of := transports[schemas.Protocol(p)]
			if of == "" || only != "" && of != only {
				return ""
			}
			only = of
		}
	}
	return only
}

// rotational is known of drives that tell what they are made of, or how fast they spin.
func rotational(d document) *bool {
	spins := true
	switch kind := schemas.MediaType(d.text("MediaType")); {
	case kind == schemas.HDDMediaType, kind == schemas.SMRMediaType, d.whole("RotationSpeedRPM") > 0 && kind == "":
	case kind == schemas.SSDMediaType:
		spins = false
	default:
		return nil
	}
	return &spins
}

// wwn is the drive's worldwide name, in the form that kernels write. Of two names of an NVMe disk they take the longer.
func wwn(d document) (found string) {
	for _, id := range d.objects("Identifiers") {
		name := strings.ToLower(strings.NewReplacer("-", "", ":", "", " ", "").Replace(id.text("DurableName")))
		for _, before := range []string{"0x", "naa.", "eui."} {
			name = strings.TrimPrefix(name, before)
		}
		if name == "" || strings.Trim(name, "0123456789abcdef") != "" || strings.Trim(name, "0") == "" {
			continue
		}
		switch format := schemas.DurableNameFormat(id.text("DurableNameFormat")); {
		case format == schemas.NGUIDDurableNameFormat:
			return "eui." + name
		case format == schemas.EUIDurableNameFormat && found == "":
			found = "eui." + name
		case format == schemas.NAADurableNameFormat && found == "":
			found = "0x" + name
		default: // kernels name disks by none of the others
		}
	}
	return found
}
