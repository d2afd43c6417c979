package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/domain/workflow"
)

// decoder reads events with the tables that this program was built with.
var decoder = sync.OnceValues(func() (*event.Registry, error) {
	return event.NewRegistry(node.Events, workflow.Events, agentcommand.Events, agent.Events, bootlease.Events, jointoken.Events,
		image.Events, image.PublicEvents, profile.Events, tenant.Events, site.Events, pool.Events, claim.Events, principal.Events)
})

// known decodes an event; nil for one that this program does not know.
func known(e contract.Event) event.Event {
	tables, err := decoder()
	if err != nil {
		return nil
	}
	fact, err := tables.Decode(e.Type, max(e.Schema, 1), e.Data)
	if err != nil {
		return nil
	}
	return fact
}

// sentence says what an event tells, in a few words. An event that this program does not know is told by its type.
func sentence(e contract.Event) string {
	fact := known(e)
	switch k := fact.(type) {
	case node.Event:
		return nodeSentence(k)
	case workflow.Event:
		return workflowSentence(k)
	case agentcommand.Event:
		return agentCommandSentence(k)
	case principal.Event:
		return principalSentence(k)
	case agent.Event:
		return agentSentence(k)
	case bootlease.Event:
		return bootLeaseSentence(k)
	case jointoken.Event:
		return joinTokenSentence(k)
	case image.Event, image.PublicEvent:
		return imageSentence(fact)
	case profile.Event:
		return profileSentence(k)
	case tenant.Event, site.Event, pool.Event, claim.Event:
		return estateSentence(fact)
	}
	return plainWords(e.Type)
}

// plainWords makes workflow.step.failed read as workflow step failed.
func plainWords(kind string) string { return strings.ReplaceAll(kind, ".", " ") }

func nodeSentence(e node.Event) string {
	switch e := e.(type) {
	case node.Enrolled:
		return "enrolled as " + e.Name + ", BMC " + e.BMC.Address
	case node.EnrollmentVoided:
		return "its enrollment was given up"
	case node.AgentJoined:
		return "joined by itself as " + e.Name
	case node.Moved:
		return movedSentence(e)
	case node.WorkflowStarted:
		return fmt.Sprintf("workflow %s (%s@%d, run %d) started", e.Workflow, e.Profile.ID, e.Profile.Version, e.Run)
	case node.UnrescueAsked:
		return "leaving rescue was asked for"
	case node.ReleasedUnverified:
		return "released without a proven wipe, by the policy " + e.Policy
	case node.PowerAsked:
		return "power " + string(e.Action) + " was asked for"
	case node.PowerFailed:
		return "power " + string(e.Action) + " came to nothing" + because(e.Error.Message)
	case node.PowerObserved:
		return "power was seen " + string(e.Power)
	case node.MaintenanceEntered:
		return "maintenance was turned on" + because(e.Reason)
	case node.MaintenanceLeft:
		return "maintenance was turned off"
	case node.Cordoned:
		return "cordoned" + because(e.Reason)
	case node.Uncordoned:
		return "uncordoned"
	case node.HardwareRecorded:
		return fmt.Sprintf("%s inventory: %d disks, %d NICs", e.Source, len(e.Hardware.Disks), len(e.Hardware.NICs))
	case node.WipeAttested:
		return wipeSentence(e.Wipe)
	case node.BMCLearned:
		return learnedSentence(e)
	case node.BMCChanged:
		return "its BMC is reached at " + e.BMC.Address + " from now on, with " + string(e.BMC.Credentials) +
			" and trust " + string(e.BMC.TLS.Mode)
	}
	return plainWords(e.EventType())
}

func learnedSentence(l node.BMCLearned) string {
	switch {
	case l.Fingerprint != "":
		return "the BMC is known by its certificate " + l.Fingerprint
	case l.System != "" && len(l.Quirks) == 0:
		return "the BMC knows the machine as " + l.System
	}
	return "its driver learned more about the BMC"
}

func movedSentence(m node.Moved) string {
	s := fmt.Sprintf("%s put it in %s", m.Verb, m.To)
	if m.From != node.None {
		s = fmt.Sprintf("%s moved it from %s to %s", m.Verb, m.From, m.To)
	}
	if m.Profile != nil {
		s += fmt.Sprintf(", profile %s@%d", m.Profile.ID, m.Profile.Version)
	}
	if m.Wipe != "" {
		s += ", wipe " + string(m.Wipe)
	}
	if m.Wiped != nil && !*m.Wiped {
		s += ", never wiped"
	}
	if m.Error != nil {
		return s + because(strings.TrimPrefix(m.Error.Code+": "+m.Error.Message, ": "))
	}
	return s + because(m.Reason)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	quoted, err := json.Marshal(reason)
	if err != nil {
		return ""
	}
	return ", because " + string(quoted)
}

func principalSentence(e principal.Event) string {
	switch e := e.(type) {
	case principal.Created:
		return string(e.Kind) + " " + e.Name + " was made"
	case principal.Disabled:
		return "disabled"
	case principal.Enabled:
		return "enabled"
	case principal.TokenIssued:
		return "token " + e.Token.ID.String() + " was issued"
	case principal.TokenRevoked:
		return "token " + e.Token.String() + " was revoked"
	case principal.Bound:
		var actions []string
		for _, p := range e.Binding.Actions {
			actions = append(actions, string(p))
		}
		return "granted " + strings.Join(actions, ", ") + " at " + string(e.Binding.Scope.Kind) + " " + e.Binding.Scope.ID
	case principal.Unbound:
		return "binding " + e.Binding.String() + " was taken away"
	}
	return plainWords(e.EventType())
}
