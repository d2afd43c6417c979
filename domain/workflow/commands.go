package workflow

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/id"
)

// Command is any verb against a workflow.
type Command interface{ workflowCommand() }

type (
	// Create makes it. The same facts again change nothing.
	Create struct{ Facts Created }

	// Advance makes every transition that is due and needs nobody's answer: begins, skips what does not apply, starts the
	// next step, times the present one out, ends the workflow. Nothing due: no events.
	Advance struct{ Tick }

	// Wait says that the step's agent command is out, or that it asked for more time, and which boot of the machine's agent
	// there was by then. Told again it changes nothing, unless it is the first to tell of a boot or of that command: a step
	// that relays sends several in turn, and an abort must find the one that is out.
	Wait struct {
		Step         string
		Attempt      int
		AgentCommand id.AgentCommand // zero: not ready yet
		Before       *Boot
	}

	// Settle ends an attempt and, in the same append, advances. It is CONFLICT where the step is not at that attempt any
	// more, or is settled already: a step leaves its attempt only once. An error of a rejoin step that is waiting changes
	// nothing: only its deadline fails it.
	Settle struct {
		Tick
		Step    string
		Attempt int
		Result  json.RawMessage
		Error   *Failure // nil: it succeeded
	}

	// Abort cancels what is pending and in flight; cleanup runs. Pending and failed workflows are cancelled at once, a
	// second abort changes nothing, a succeeded one is INVALID_STATE. Reason holds at most 512 characters.
	Abort struct {
		Tick
		Reason string
	}

	// Pause lets the step in flight finish and starts no other. INVALID_STATE but from running.
	Pause struct{}

	// Resume starts steps again. INVALID_STATE but from paused.
	Resume struct{}

	// Retry runs a failed workflow again from a main step, at the latest the one that failed; empty: the first that did not
	// succeed. Run is the run that the node's stream has decided on, zero the next one; the same run again changes nothing.
	Retry struct {
		FromStep string
		Run      int
	}
)

// Tick is what a transition needs to know of the world.
type Tick struct {
	Now    time.Time
	Labels map[string]string // of the machine, for when
	Jitter float64           // 0 to 1: spreads the pauses between attempts
}

func (Create) workflowCommand()  {}
func (Advance) workflowCommand() {}
func (Wait) workflowCommand()    {}
func (Settle) workflowCommand()  {}
func (Abort) workflowCommand()   {}
func (Pause) workflowCommand()   {}
func (Resume) workflowCommand()  {}
func (Retry) workflowCommand()   {}

// Action is what the engine must do for a workflow now.
type Action string

// The actions.
const (
	Rest    Action = "rest"    // nothing, until somebody asks: paused without a step in flight, failed, or over
	Proceed Action = "proceed" // send Advance
	Run     Action = "run"     // run the control-plane step
	Send    Action = "send"    // send the agent step's command, then Wait
	Look    Action = "look"    // see what became of the agent step's command, or whether the agent rejoined
	Sleep   Action = "sleep"   // nothing is due before At
)

// Due is what Next says: the action, the step it is about, and when to look again at the latest. For a step in flight At is
// its deadline.
type Due struct {
	Action Action
	Step   *Step
	At     time.Time
}
