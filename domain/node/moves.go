package node

// ProvisionState is where a machine stands on its way from a box to a node and back.
type ProvisionState string

// The provision states. States says what each is.
const (
	// None is the state before the first event.
	None          ProvisionState = ""
	Joined        ProvisionState = "joined"
	Adopted       ProvisionState = "adopted"
	Enrolling     ProvisionState = "enrolling"
	Inspecting    ProvisionState = "inspecting"
	Commissioning ProvisionState = "commissioning"
	Ready         ProvisionState = "ready"
	Deploying     ProvisionState = "deploying"
	Deployed      ProvisionState = "deployed"
	Releasing     ProvisionState = "releasing"
	Retiring      ProvisionState = "retiring"
	Retired       ProvisionState = "retired"
	Rescue        ProvisionState = "rescue"
	Failed        ProvisionState = "failed"
)

// Kind tells whether a state waits, moves by itself, or stays.
type Kind string

// The kinds of state.
const (
	Waiting        Kind = "waiting"
	Stable         Kind = "stable"
	WorkflowDriven Kind = "workflow-driven"
	Terminal       Kind = "terminal"
)

// StateInfo is one row of States.
type StateInfo struct {
	State       ProvisionState
	Kind        Kind
	Profile     string // of the workflow that must run in it; empty: none, or for deploying the one that the verb names
	Schedulable bool
	Meaning     string
}

// States lists every provision state, in the order of a machine's life.
var States = []StateInfo{
	{Joined, Waiting, "", false, "an adopted machine whose acceptance checks have not passed yet"},
	{Adopted, Stable, "", true, "a machine that brought its own OS, accepted by its pool"},
	{Enrolling, WorkflowDriven, "metal-enroll", false, "the BMC, its credentials and the machine's identity are verified"},
	{Inspecting, WorkflowDriven, "metal-inspect", false, "inventory is taken through the BMC and from the ramdisk"},
	{Commissioning, WorkflowDriven, "metal-commission", false, "burn-in, then a wipe"},
	{Ready, Stable, "", false, "wiped, proven, and free to deploy"},
	{Deploying, WorkflowDriven, "", false, "the deploy profile named by the verb runs"},
	{Deployed, Stable, "", true, "the installed OS runs"},
	{Releasing, WorkflowDriven, "metal-release", false, "the disks are wiped and the machine is powered off"},
	{Retiring, WorkflowDriven, "metal-retire", false, "a last wipe, power off, certificates revoked"},
	{Retired, Terminal, "", false, "gone for good"},
	{Rescue, WorkflowDriven, "metal-rescue", false, "the rescue ramdisk boots, then stays up beside the installed OS"},
	{Failed, Stable, "", false, "a workflow failed or was aborted; an operator decides"},
}

// InfoOf is the row of s; the zero row for a state that is not in the table.
func InfoOf(s ProvisionState) StateInfo {
	for _, row := range States {
		if row.State == s {
			return row
		}
	}
	return StateInfo{}
}

// Verb is what moves a node from one state to another.
type Verb string

// The verbs of the move table, and the four that change another axis than the provision state.
const (
	VerbEnroll   Verb = "enroll"
	VerbJoin     Verb = "join"
	VerbAccept   Verb = "accept"
	VerbManage   Verb = "manage"
	VerbInspect  Verb = "inspect"
	VerbProvide  Verb = "provide"
	VerbDeploy   Verb = "deploy"
	VerbUndeploy Verb = "undeploy"
	VerbRescue   Verb = "rescue"
	VerbUnrescue Verb = "unrescue"
	VerbRetire   Verb = "retire"
	VerbAbandon  Verb = "abandon"
	VerbComplete Verb = "complete"
	VerbFail     Verb = "fail"
	VerbAbort    Verb = "abort"
	VerbRecover  Verb = "recover"
	VerbRetry    Verb = "retry"

	VerbPower       Verb = "power"
	VerbMaintenance Verb = "maintenance"
	VerbCordon      Verb = "cordon"
	VerbUncordon    Verb = "uncordon"
)

// Actor says who may apply a verb.
type Actor string

// The actors.
const (
	Operator       Actor = "operator"
	Agent          Actor = "agent"
	ProcessManager Actor = "process manager"
)

// Move is one row of Moves.
type Move struct {
	From ProvisionState
	Verb Verb
	To   ProvisionState
	Who  Actor
	Why  string // when the row is odd
}

// Moves is the provision state table. A move that is not in it, nor given by Recoveries, is INVALID_STATE.
var Moves = []Move{
	{None, VerbEnroll, Enrolling, Operator, ""},
	{None, VerbJoin, Joined, Agent, "with a token of role node"},
	{Joined, VerbAccept, Adopted, ProcessManager, "when the pool's acceptance checks pass"},

	{Ready, VerbManage, Enrolling, Operator, "verify the BMC again, then inspect and commission"},
	{Ready, VerbInspect, Inspecting, Operator, "inspect again, then commission"},
	{Ready, VerbProvide, Commissioning, Operator, "commission again"},
	{Ready, VerbDeploy, Deploying, Operator, "profile id and version are pinned"},
	{Deployed, VerbUndeploy, Releasing, Operator, ""},
	{Rescue, VerbUndeploy, Releasing, Operator, ""},
	{Deployed, VerbRescue, Rescue, Operator, ""},
	{Rescue, VerbUnrescue, Deployed, ProcessManager, "asked by the operator, applied when metal-unrescue succeeded"},
	{Ready, VerbRetire, Retiring, Operator, ""},
	{Failed, VerbRetire, Retiring, Operator, "a disk that can never be proven wiped must not trap the machine"},
	{Joined, VerbRetire, Retired, Operator, "its disks are not ours to wipe; its certificates are revoked"},
	{Adopted, VerbRetire, Retired, Operator, "its disks are not ours to wipe; its certificates are revoked"},
	{Failed, VerbAbandon, Retired, Operator, "the machine is gone or dead; recorded as never wiped"},

	{Enrolling, VerbComplete, Inspecting, ProcessManager, ""},
	{Inspecting, VerbComplete, Commissioning, ProcessManager, ""},
	{Commissioning, VerbComplete, Ready, ProcessManager, "only with a verified wipe"},
	{Deploying, VerbComplete, Deployed, ProcessManager, ""},
	{Releasing, VerbComplete, Ready, ProcessManager, "only with a verified wipe"},
	{Releasing, VerbComplete, Commissioning, ProcessManager, "after undeploy with wipe: none"},
	{Retiring, VerbComplete, Retired, ProcessManager, ""},
	{Rescue, VerbComplete, Rescue, ProcessManager, "stays, marked up: the ramdisk has booted"},

	{Joined, VerbFail, Failed, ProcessManager, "the acceptance checks failed"},
	{Enrolling, VerbFail, Failed, ProcessManager, ""},
	{Inspecting, VerbFail, Failed, ProcessManager, ""},
	{Commissioning, VerbFail, Failed, ProcessManager, ""},
	{Deploying, VerbFail, Failed, ProcessManager, ""},
	{Releasing, VerbFail, Failed, ProcessManager, ""},
	{Retiring, VerbFail, Failed, ProcessManager, ""},
	{Rescue, VerbFail, Failed, ProcessManager, ""},

	{Enrolling, VerbAbort, Failed, Operator, "with a workflow running"},
	{Inspecting, VerbAbort, Failed, Operator, "with a workflow running"},
	{Commissioning, VerbAbort, Failed, Operator, "with a workflow running"},
	{Deploying, VerbAbort, Failed, Operator, "with a workflow running"},
	{Releasing, VerbAbort, Failed, Operator, "with a workflow running"},
	{Retiring, VerbAbort, Failed, Operator, "with a workflow running"},
	{Rescue, VerbAbort, Failed, Operator, "with a workflow running"},
}

// Recovery is one row of Recoveries.
type Recovery struct {
	FailedFrom ProvisionState
	Recover    ProvisionState // where recover leads
	Retry      ProvisionState // where a retry of the failed workflow leads; None: no workflow can be retried
	Why        string
}

// Recoveries is the second table: where recover and retry lead from failed, by the state that failed. It is total over
// the states that can fail, and never leads to ready.
var Recoveries = []Recovery{
	{Joined, Joined, None, ""},
	{Enrolling, Enrolling, Enrolling, ""},
	{Inspecting, Inspecting, Inspecting, ""},
	{Commissioning, Commissioning, Commissioning, ""},
	{Deploying, Releasing, Deploying, "whatever was written is wiped and proven wiped"},
	{Releasing, Releasing, Releasing, ""},
	{Retiring, Retiring, Retiring, ""},
	{Rescue, Deployed, Rescue, "the installed OS was never touched"},
}

// Destinations lists where verb may lead from state, failedFrom deciding for recover and retry. None legal: empty.
func Destinations(from ProvisionState, verb Verb, failedFrom ProvisionState) []ProvisionState {
	var to []ProvisionState
	for _, m := range Moves {
		if m.From == from && m.Verb == verb {
			to = append(to, m.To)
		}
	}
	if from != Failed {
		return to
	}
	for _, r := range Recoveries {
		switch {
		case r.FailedFrom != failedFrom:
		case verb == VerbRecover:
			to = append(to, r.Recover)
		case verb == VerbRetry && r.Retry != None:
			to = append(to, r.Retry)
		}
	}
	return to
}

// AskedBy says who applies a verb. Unrescue is asked for by an operator, though a process manager makes the move.
func AskedBy(v Verb) Actor {
	if v == VerbUnrescue {
		return Operator
	}
	for _, m := range Moves {
		if m.Verb == v {
			return m.Who
		}
	}
	return Operator
}

// Verbs lists every verb that can move a node, in the order of the table.
func Verbs() []Verb {
	var verbs []Verb
	seen := map[Verb]bool{}
	for _, m := range Moves {
		if !seen[m.Verb] {
			seen[m.Verb] = true
			verbs = append(verbs, m.Verb)
		}
	}
	return append(verbs, VerbRecover, VerbRetry)
}

// Legal lists the verbs that the tables allow from a state.
func Legal(from, failedFrom ProvisionState) []Verb {
	legal := []Verb{}
	for _, v := range Verbs() {
		if len(Destinations(from, v, failedFrom)) > 0 {
			legal = append(legal, v)
		}
	}
	return legal
}
