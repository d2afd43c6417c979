package redfish

import (
	"context"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
)

// Sensors reads the sensors of the system's chassis: the older Thermal and Power, else the Sensors collection. A sensor
// without a reading is left out.
func (m *machine) Sensors(ctx context.Context) ([]bmc.Reading, error) {
	sys, _, err := m.system(ctx)
	if err != nil {
		return nil, err
	}
	t := &taking{c: m.c, sys: sys}
	links := sys.links("Links", "Chassis")
	if len(links) == 0 && m.c.known().Chassis != "" {
		if links, err = m.c.members(ctx, m.c.known().Chassis); err != nil {
			return nil, err
		}
	}
	var out []bmc.Reading
	for _, chassis := range t.readAll(ctx, links) {
		out = append(out, t.chassisSensors(ctx, chassis)...)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	slices.SortStableFunc(out, func(a, b bmc.Reading) int {
		return strings.Compare(a.Kind+"\x00"+a.Name, b.Kind+"\x00"+b.Name)
	})
	return out, nil
}

func (t *taking) chassisSensors(ctx context.Context, chassis document) []bmc.Reading {
	var out []bmc.Reading
	add := func(d document, kind, unit string, keys ...string) {
		for _, key := range keys {
			if value, ok := d.number(key); ok {
				out = append(out, bmc.Reading{Name: sensorName(d), Kind: kind, Value: value, Unit: unit, Health: d.label("Status", "Health")})
				return
			}
		}
	}
	if l := chassis.link("Thermal"); l != "" {
		doc := t.read(ctx, l)
		for _, d := range doc.objects("Temperatures") {
			add(d, "temperature", "Cel", "ReadingCelsius")
		}
		for _, d := range doc.objects("Fans") {
			unit := "RPM"
			if strings.EqualFold(d.text("ReadingUnits"), "Percent") || d.text("ReadingUnits") == "%" {
				unit = "%"
			}
			add(d, "fan", unit, "Reading", "ReadingRPM")
		}
	}
	if l := chassis.link("Power"); l != "" {
		doc := t.read(ctx, l)
		for _, d := range doc.objects("Voltages") {
			add(d, "voltage", "V", "ReadingVolts")
		}
		for _, d := range doc.objects("PowerControl") {
			add(d, "power", "W", "PowerConsumedWatts")
		}
		for _, d := range doc.objects("PowerSupplies") {
			add(d, "power", "W", "PowerInputWatts", "LastPowerOutputWatts")
		}
	}
	if len(out) > 0 {
		return out
	}
	var s source
	for _, d := range t.collection(ctx, &s, chassis.link("Sensors")) {
		if kind, unit := sensorKind(d); kind != "" {
			add(d, kind, unit, "Reading")
		}
	}
	return out
}

func sensorName(d document) string {
	for _, key := range []string{"Name", "FanName", "Id", "MemberId"} {
		if s := d.label(key); s != "" {
			return s
		}
	}
	return ""
}

// sensorKind is what a sensor of the newer form measures, and in which unit; empty for what nobody asks for.
func sensorKind(d document) (kind, unit string) {
	switch schemas.ReadingType(d.text("ReadingType")) {
	case schemas.TemperatureReadingType:
		return "temperature", "Cel"
	case schemas.RotationalReadingType:
		return "fan", "RPM"
	case schemas.VoltageReadingType:
		return "voltage", "V"
	case schemas.PowerReadingType:
		return "power", "W"
	case schemas.PercentReadingType:
		if strings.Contains(strings.ToLower(d.text("Name")+d.text("PhysicalContext")), "fan") {
			return "fan", "%"
		}
	default:
	}
	return "", ""
}
