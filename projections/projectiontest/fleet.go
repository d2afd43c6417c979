package projectiontest

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// ID is the n-th id of its kind, the same in every run; ids rise with n as those of real resources rise with time.
func ID(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("0190%04x-%04x-7000-8000-%012x", n>>16&0xffff, n&0xffff, n))
}

// Append is one append that a history asks for.
type Append struct {
	Stream event.Stream
	Events []event.Event
}

// Enroll gives the first append of the n-th node, as the verb appends it: two events at once.
func Enroll(n int, tenant id.Tenant, site id.Site, pool id.Pool, labels map[string]string) Append {
	machine := id.Of[id.Node](ID(n))
	return Append{node.StreamOf(machine), []event.Event{
		node.Enrolled{
			Node: machine, Tenant: tenant, Site: site, Pool: pool, Name: fmt.Sprintf("rack%d-%d", n/40, n%40), Labels: labels,
			BMC: node.BMC{
				Driver: "redfish", Address: fmt.Sprintf("https://10.0.%d.%d", n/250, n%250+1), Credentials: "secret:planted",
				TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: fmt.Sprintf("%064x", n)},
			},
			MACs: []string{fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&255, n>>8&255, n&255)},
		},
		node.Moved{To: node.Enrolling, Verb: node.VerbEnroll},
	}}
}

// Event draws any later event of a node, without regard to the rules: a fold must take whatever the log holds.
func Event(t *rapid.T, machine id.Node) event.Event {
	text := rapid.StringN(0, 12, 40)
	workflow := id.Of[id.Workflow](ID(rapid.IntRange(1, 1000).Draw(t, "workflow")))
	profile := node.Profile{ID: "metal-inspect", Version: rapid.IntRange(1, 9).Draw(t, "version")}
	disk := node.Disk{WWN: rapid.SampledFrom([]string{"0x1", "0x2"}).Draw(t, "wwn"), Bytes: 1 << 40}
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) event.Event { return moved(t, workflow, profile, text.Draw(t, "reason")) }),
		rapid.Just[event.Event](node.WorkflowStarted{Workflow: workflow, Profile: profile, Run: 1}),
		rapid.Just[event.Event](node.UnrescueAsked{Workflow: workflow}),
		rapid.Just[event.Event](node.ReleasedUnverified{Policy: "allow-unverified-release"}),
		rapid.Just[event.Event](node.PowerAsked{Action: node.ActionCycle}),
		rapid.Just[event.Event](node.PowerObserved{Power: node.PowerOn}),
		rapid.Just[event.Event](node.BMCChanged{BMC: node.BMC{Driver: "redfish", Address: "https://10.0.0.99", Credentials: "secret:2"}}),
		rapid.Just[event.Event](node.MaintenanceEntered{Reason: text.Draw(t, "maintenance")}),
		rapid.Just[event.Event](node.MaintenanceLeft{}),
		rapid.Just[event.Event](node.Cordoned{Reason: text.Draw(t, "cordon")}),
		rapid.Just[event.Event](node.Uncordoned{}),
		rapid.Just[event.Event](node.HardwareRecorded{
			Source: node.InBand, Hardware: node.Hardware{Disks: []node.Disk{disk}},
		}),
		rapid.Just[event.Event](node.BMCLearned{
			Fingerprint: "f1", System: "1", Quirks: json.RawMessage(`{"vendor":"dell","a":[1]}`),
		}),
		rapid.Just[event.Event](node.WipeAttested{Wipe: node.Wipe{
			Workflow: workflow, Signed: true, Method: node.WipeQuick,
			Disks: []node.WipedDisk{{Disk: disk, Method: node.WipeQuick, ReadBack: true}},
		}}),
	).Draw(t, "event of "+machine.String())
}

func moved(t *rapid.T, workflow id.Workflow, profile node.Profile, reason string) event.Event {
	m := node.Moved{
		From:     rapid.SampledFrom(node.States).Draw(t, "from").State,
		To:       rapid.SampledFrom(node.States).Draw(t, "to").State,
		Verb:     rapid.SampledFrom(node.Verbs()).Draw(t, "verb"),
		Workflow: workflow,
	}
	if m.To == node.Failed {
		m.Error = &node.Failure{Code: "DRIVER_ERROR", Message: reason}
	}
	if m.To == node.Deploying {
		m.Profile = &profile
	}
	if m.To == node.Releasing {
		m.Wipe = node.WipeQuick
	}
	return m
}
