package redfish

import (
	"context"
	"strings"

	"github.com/better-compute/metal/adapters/bmc"
)

// Identify reads who the machine is. Only the system must answer; what its manager tells is left out when it does not.
func (m *machine) Identify(ctx context.Context) (bmc.Identity, error) {
	sys, _, err := m.system(ctx)
	if err != nil {
		return bmc.Identity{}, err
	}
	id := bmc.Identity{
		SystemID: sys.label("Id"), UUID: strings.ToLower(sys.label("UUID")), Serial: sys.label("SerialNumber"),
		SKU: sys.label("SKU"), Manufacturer: sys.label("Manufacturer"), Model: sys.label("Model"),
		BIOSVersion: sys.label("BiosVersion"), Power: powerOf(sys), Health: sys.label("Status", "Health"),
	}
	if id.SystemID == "" {
		id.SystemID = lastName(m.known().System)
	}
	id.Vendor = m.c.vendorOf(sys)
	id.Weak = weakClaims(id)
	if err := m.identifyManager(ctx, sys, &id); err != nil {
		return bmc.Identity{}, err
	}
	return id, nil
}

func (m *machine) identifyManager(ctx context.Context, sys document, id *bmc.Identity) error {
	all, err := m.managers(ctx, sys)
	if err == nil && len(all) > 0 {
		var doc document
		if doc, _, err = m.c.get(ctx, all[0]); err == nil {
			id.ManagerModel, id.ManagerFirmware = doc.label("Model"), doc.label("FirmwareVersion")
			m.learn(func(f *facts) { f.Manager = all[0] })
		}
	}
	if accounts := m.c.known(); err == nil && accounts.Accounts != "" && accounts.Lockout == 0 {
		if doc, _, err := m.c.get(ctx, accounts.Accounts); err == nil {
			m.c.learn(func(l *learned) { l.Lockout = threshold(doc) })
		}
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

// vendorOf is whose quirks apply: as the service root tells, else who made the machine.
func (c *conn) vendorOf(sys document) string {
	vendor := c.known().Vendor
	if maker := sys.label("Manufacturer"); vendor == "" && maker != "" {
		vendor = vendorName(maker)
		c.learn(func(l *learned) { l.Vendor = vendor })
	}
	return vendor
}

// threshold is after how many failures an account is locked; -1: never, as far as is told.
func threshold(service document) int {
	if n := service.whole("AccountLockoutThreshold"); n > 0 && n < 1000 {
		return int(n)
	}
	return -1
}

// placeholders are what firmware writes where nobody gave a value.
var placeholders = map[string]bool{
	"none": true, "n/a": true, "na": true, "null": true, "unknown": true, "default string": true, "not specified": true,
	"not available": true, "not applicable": true, "to be filled by o.e.m.": true, "system serial number": true,
	"0123456789": true, "123456789": true, "1234567890": true, "empty": true, "chassis serial number": true,
	"03000200-0400-0500-0006-000700080009": true,
}

// weakClaims names the claims that look made up: two machines may have the same.
func weakClaims(id bmc.Identity) []string {
	var out []string
	for _, claim := range []struct{ name, value string }{{"uuid", id.UUID}, {"serial", id.Serial}, {"sku", id.SKU}} {
		if claim.value != "" && weak(claim.name, claim.value) {
			out = append(out, claim.name)
		}
	}
	return out
}

func weak(name, value string) bool {
	low := strings.ToLower(value)
	if placeholders[low] || strings.Trim(low, "0-. ") == "" || strings.Trim(low, "f-") == "" || strings.Trim(low, "x-") == "" {
		return true
	}
	// A UUID that is a MAC address behind zeros is unique, but changes with the board that owns the address.
	return name == "uuid" && strings.HasPrefix(low, "00000000-0000-0000-0000-")
}
