package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

var nodeKind = kind[contract.Node]{
	id:   func(n contract.Node) string { return n.ID },
	more: hardware,
	columns: []column[contract.Node]{
		{name: "NODE", of: func(n contract.Node) string { return n.ID }},
		{name: "NAME", of: func(n contract.Node) string { return n.Name }},
		{name: "STATE", of: func(n contract.Node) string { return n.Provision }, shade: stateShade},
		{name: "MARKS", of: marks},
		{name: "POWER", of: power},
		{name: "AGENT", of: connectivity},
		{name: "POOL", of: func(n contract.Node) string { return n.Pool }},
		{name: "UPDATED", of: func(n contract.Node) string { return clock(n.UpdatedAt) }},
		{name: "SITE", wide: true, of: func(n contract.Node) string { return n.Site }},
		{name: "TENANT", wide: true, of: func(n contract.Node) string { return n.Tenant }},
		{name: "ROLE", wide: true, of: func(n contract.Node) string { return n.Role }},
		{name: "BMC", wide: true, of: bmc},
		{name: "BMC-CERTIFICATE", wide: true, of: bmcCertificate},
		{name: "BMC-SYSTEM", wide: true, of: func(n contract.Node) string { return learned(n).System }},
		{name: "BMC-QUIRKS", wide: true, of: func(n contract.Node) string { return string(learned(n).Quirks) }},
		{name: "MACS", wide: true, of: func(n contract.Node) string { return strings.Join(n.MACs, ",") }},
		{name: "LABELS", wide: true, of: func(n contract.Node) string { return labels(n.Labels) }},
		{name: "PROFILE", wide: true, of: profileOf},
		{name: "WORKFLOW", wide: true, of: func(n contract.Node) string { return n.Workflow }},
		{name: "FAILED-FROM", wide: true, of: func(n contract.Node) string { return n.FailedFrom }},
		{name: "MAINTENANCE-REASON", wide: true, of: func(n contract.Node) string { return n.MaintenanceReason }},
		{name: "CORDON-REASON", wide: true, of: func(n contract.Node) string { return n.CordonReason }},
		{name: "ERROR", wide: true, of: lastError},
		{name: "WIPE", wide: true, of: wipe},
		{name: "VERSION", wide: true, of: func(n contract.Node) string { return strconv.FormatUint(n.Version, 10) }},
		{name: "POSITION", wide: true, of: func(n contract.Node) string { return strconv.FormatUint(n.Position, 10) }},
	},
}

func stateShade(state string) string {
	kind := node.InfoOf(node.ProvisionState(state)).Kind
	switch {
	case state == string(node.Failed):
		return red
	case kind == node.WorkflowDriven || kind == node.Waiting:
		return yellow
	case kind == node.Stable:
		return green
	}
	return plain
}

// marks are what keeps work off the machine, and what else stands out.
func marks(n contract.Node) string {
	var m []string
	if n.Maintenance {
		m = append(m, "maintenance")
	}
	if n.Cordoned {
		m = append(m, "cordoned")
	}
	if n.Unrescuing {
		m = append(m, "unrescuing")
	}
	if n.ReleaseUnverified {
		m = append(m, "unverified")
	}
	return strings.Join(m, ",")
}

func power(n contract.Node) string {
	if n.PowerAction != "" {
		return n.Power + " (" + n.PowerAction + " asked)"
	}
	if n.PowerError != nil {
		return n.Power + " (power action failed: " + n.PowerError.Message + ")"
	}
	return n.Power
}

func bmc(n contract.Node) string {
	if n.BMC == nil {
		return ""
	}
	return n.BMC.Driver + " " + n.BMC.Address
}

// connectivity is whether its agent is there, and as what.
func connectivity(n contract.Node) string {
	if n.Agent == nil {
		return n.Connectivity
	}
	return n.Connectivity + " (" + n.Agent.Role + ")"
}

// learned is the management controller; one without anything known where there is none.
func learned(n contract.Node) contract.BMC {
	if n.BMC == nil {
		return contract.BMC{}
	}
	return *n.BMC
}

// bmcCertificate is the fingerprint that the controller must show: given by hand, or pinned when it was first seen.
func bmcCertificate(n contract.Node) string {
	b := learned(n)
	return orElse(b.TLS.Fingerprint, b.Fingerprint)
}

func profileOf(n contract.Node) string {
	if n.Profile == nil {
		return ""
	}
	return fmt.Sprintf("%s@%d", n.Profile.ID, n.Profile.Version)
}

func lastError(n contract.Node) string {
	if n.LastError == nil {
		return ""
	}
	return strings.TrimPrefix(n.LastError.Code+": "+n.LastError.Message, ": ")
}

func wipe(n contract.Node) string {
	if n.WipeVerified {
		return "verified"
	}
	return "not verified"
}

// clock is a time as tables show it: RFC 3339 in UTC, to the second.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
