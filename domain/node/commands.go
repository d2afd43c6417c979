package node

import (
	"time"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Command is any verb against a node, with whatever the decision needs from outside.
type Command interface{ nodeCommand() }

type (
	// Enroll hands over a machine with a BMC. Addresses are already normalised and claimed for Node.
	Enroll struct{ Facts Enrolled }
	// VoidEnrollment closes the stream of an enrollment that never finished.
	VoidEnrollment struct{ Facts EnrollmentVoided }
	// Join brings a machine that already runs an OS.
	Join struct{ Facts AgentJoined }
	// Accept moves a joined machine on; its pool's checks passed.
	Accept struct{}
	// Manage verifies the BMC again, then inspects and commissions.
	Manage struct{}
	// Inspect inspects again, then commissions.
	Inspect struct{}
	// Provide commissions again.
	Provide struct{}
	// Deploy installs the profile.
	Deploy struct{ Profile Profile }
	// Undeploy releases the machine. An empty Wipe is quick.
	Undeploy struct{ Wipe WipeMethod }
	// AskRescue boots the rescue ramdisk beside the installed OS.
	AskRescue struct{}
	// AskUnrescue asks to leave rescue for the installed OS; Workflow is the id that metal-unrescue will run under.
	AskUnrescue struct{ Workflow id.Workflow }
	// Retire takes the machine out for good. An empty Wipe is quick.
	Retire struct{ Wipe WipeMethod }
	// Abandon retires a machine that can't be reached any more; it is recorded as never wiped.
	Abandon struct{ Reason string }
	// Recover moves a failed node to the last stable point.
	Recover struct{}
	// Retry moves a failed node back to where its workflow failed, to run the same workflow again from a step; empty: from the
	// one that failed.
	Retry struct {
		Workflow id.Workflow
		FromStep string
	}
	// Abort stops the running workflow and fails the node. Reason holds at most 512 characters.
	Abort struct{ Reason string }

	// StartWorkflow makes Workflow the active one.
	StartWorkflow struct {
		Workflow id.Workflow
		Profile  Profile
	}
	// Complete says that the active workflow succeeded. Policy names the agentless pool's policy that allows ready without
	// a verified wipe; empty: none does.
	Complete struct {
		Workflow id.Workflow
		Role     Role // of a deploy's profile; empty is host
		Policy   string
	}
	// Fail says that the active workflow failed or was cancelled, or with a zero Workflow that none could be started or,
	// in joined, that the acceptance checks failed.
	Fail struct {
		Workflow id.Workflow
		Code     fault.Code
		Message  string
	}
	// RecordHardware stores a new inventory.
	RecordHardware struct{ Facts HardwareRecorded }
	// AttestWipe stores the result of a wipe whose signature was checked.
	AttestWipe struct{ Wipe Wipe }
	// LearnBMC stores what a driver found out about the controller. Another fingerprint than the pinned one is DRIVER_ERROR.
	LearnBMC struct{ Facts BMCLearned }
	// TrustBMC pins another certificate of the controller, by the operator's word.
	TrustBMC struct{ Fingerprint string }
	// ChangeBMC says how the controller is reached from now on. Its address is already normalised and claimed for the node.
	ChangeBMC struct{ BMC BMC }
	// ObservePower stores the power state that was read. Key is that of the work that read it: a power action that was asked for
	// under another one is still to be carried out.
	ObservePower struct {
		Power Power
		Key   string
	}

	// AskPower asks for a power action. Key names the agent command that carries it out, until NotAfter.
	AskPower struct {
		Action   PowerAction
		Key      string
		NotAfter time.Time
	}
	// FailPower says that the power action of that key came to nothing. Another action than the present one changes nothing.
	FailPower struct {
		Key     string
		Code    fault.Code
		Message string
	}
	// SetMaintenance turns maintenance on, with a reason, or off.
	SetMaintenance struct {
		On     bool
		Reason string
	}
	// Cordon keeps new work off the node.
	Cordon struct{ Reason string }
	// Uncordon lets work on the node again.
	Uncordon struct{}
)

func (Enroll) nodeCommand()         {}
func (VoidEnrollment) nodeCommand() {}
func (Join) nodeCommand()           {}
func (Accept) nodeCommand()         {}
func (Manage) nodeCommand()         {}
func (Inspect) nodeCommand()        {}
func (Provide) nodeCommand()        {}
func (Deploy) nodeCommand()         {}
func (Undeploy) nodeCommand()       {}
func (AskRescue) nodeCommand()      {}
func (AskUnrescue) nodeCommand()    {}
func (Retire) nodeCommand()         {}
func (Abandon) nodeCommand()        {}
func (Recover) nodeCommand()        {}
func (Retry) nodeCommand()          {}
func (Abort) nodeCommand()          {}
func (StartWorkflow) nodeCommand()  {}
func (Complete) nodeCommand()       {}
func (Fail) nodeCommand()           {}
func (RecordHardware) nodeCommand() {}
func (AttestWipe) nodeCommand()     {}
func (LearnBMC) nodeCommand()       {}
func (TrustBMC) nodeCommand()       {}
func (ChangeBMC) nodeCommand()      {}
func (ObservePower) nodeCommand()   {}
func (AskPower) nodeCommand()       {}
func (FailPower) nodeCommand()      {}
func (SetMaintenance) nodeCommand() {}
func (Cordon) nodeCommand()         {}
func (Uncordon) nodeCommand()       {}
