package node

import (
	"fmt"
	"slices"

	"github.com/better-compute/metal/domain/id"
)

// Evolve folds one event into the state: assignments only, no checks. An event it does not know is a bug of this
// program, found by a test that walks Events.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Enrolled:
		s.ID, s.Tenant, s.Site, s.Pool, s.Name = e.Node, e.Tenant, e.Site, e.Pool, e.Name
		s.Labels, s.MACs, s.HardwareProfile = e.Labels, e.MACs, e.HardwareProfile
		s.BMC = &e.BMC
	case EnrollmentVoided:
		s.ID, s.Tenant, s.Voided = e.Node, e.Tenant, true
	case AgentJoined:
		s.ID, s.Tenant, s.Site, s.Pool, s.Name = e.Node, e.Tenant, e.Site, e.Pool, e.Name
		s.Labels, s.MACs = e.Labels, e.MACs
	case Moved:
		s = evolveMoved(s, e)
	case WorkflowStarted:
		s.Workflow = &Workflow{ID: e.Workflow, Profile: e.Profile, Run: e.Run, FromStep: e.FromStep}
	case UnrescueAsked:
		s.Unrescuing, s.UnrescueWorkflow = true, e.Workflow
	case ReleasedUnverified:
		s.ReleaseUnverified = true
	case PowerAsked:
		if s.PowerAction != "" {
			s.PowerReplaced = append(slices.Clip(s.PowerReplaced), s.PowerKey)
		}
		s.PowerAction, s.PowerKey, s.PowerNotAfter, s.PowerError = e.Action, e.Key, e.NotAfter, nil
	case PowerObserved:
		s.Power = e.Power
		if !e.Aside {
			s.PowerAction, s.PowerError, s.PowerReplaced = "", nil, nil
		}
	case PowerFailed:
		s.PowerAction, s.PowerError, s.PowerReplaced = "", &e.Error, nil
	case MaintenanceEntered:
		s.Maintenance = &Mark{Reason: e.Reason}
	case MaintenanceLeft:
		s.Maintenance = nil
	case Cordoned:
		s.Cordon = &Mark{Reason: e.Reason}
	case Uncordoned:
		s.Cordon = nil
	case HardwareRecorded:
		s.Hardware = s.Hardware.with(e)
	case WipeAttested:
		w := e.Wipe
		s.Wipe = &w
		if s.WipeVerified() {
			s.ReleaseUnverified = false
		}
	case BMCLearned:
		s.Learned = s.Learned.With(e)
	case BMCChanged:
		if s.BMC == nil || s.BMC.TLS != e.BMC.TLS {
			s.Learned.Fingerprint = "" // pinned under another policy
		}
		s.BMC = &e.BMC
	default:
		panic(fmt.Sprintf("node.Evolve does not know %T", e))
	}
	return s
}

func (i Inventories) with(e HardwareRecorded) Inventories {
	hardware := e.Hardware
	if e.Source == InBand {
		i.InBand = &hardware
	} else {
		i.OutOfBand = &hardware
	}
	return i
}

func evolveMoved(s State, e Moved) State {
	if s.Workflow != nil {
		s.LastWorkflow, s.LastRun = s.Workflow.ID, s.Workflow.Run
		s.LastProfile = &s.Workflow.Profile
	}
	s.Workflow, s.Provision, s.Answered = nil, e.To, nil

	switch {
	case e.To == Failed:
		s.FailedFrom, s.FailedBy, s.FailedWorkflow, s.LastError = e.From, e.Verb, e.Workflow, e.Error
		s.Maintenance = &Mark{Reason: "failed while " + string(e.From)}
	case e.To == Deployed && e.Role != "":
		s.Role = e.Role
	case e.To == Ready:
		s.Profile, s.ReleaseWipe, s.Role = nil, "", ""
	}
	if e.From == Failed {
		if e.Verb == VerbRecover || e.Verb == VerbRetire {
			s.Answered = s.LastError
		}
		s.FailedFrom, s.FailedBy, s.FailedWorkflow, s.LastError = None, "", id.Workflow{}, nil
	}
	if e.Profile != nil {
		s.Profile = e.Profile
	}
	if e.Wipe != "" {
		s.ReleaseWipe = e.Wipe
	}
	if needsNewWipe(e) {
		s.Wipe = nil
	}
	s.RescueUp = e.To == Rescue && e.Verb == VerbComplete
	if e.To != Failed && e.Verb != VerbRetry {
		s.Unrescuing = false
	}
	return s
}

// needsNewWipe tells the moves after which an earlier wipe proves nothing: something may write to the disks from here on,
// or an operator asked for a chain that ends in a wipe of its own. A retry keeps what its workflow has proven.
func needsNewWipe(e Moved) bool {
	written := e.To == Deploying || e.To == Deployed || e.To == Rescue
	return written || e.Verb == VerbManage || e.Verb == VerbInspect || e.Verb == VerbProvide || e.Verb == VerbRetire
}
