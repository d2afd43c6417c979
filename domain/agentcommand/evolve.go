package agentcommand

import "fmt"

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) { //nolint:gochecksumtype // State holds the first event, which makes it look like one
	case Requested:
		return State{Requested: e, Status: Pending}
	case HandedOut:
		s.Status, s.Agent, s.BootID = Dispatched, e.Agent, e.BootID
	case Progressed:
		s.Status = e.Status
	case Settled:
		s.Status, s.Result, s.Code, s.Reason, s.Details = e.Status, e.Result, e.Code, e.Reason, e.Details
		s.Attestation, s.Attested = e.Attestation, e.Attested
	case SecretFetched:
		s.Fetches++
	default:
		panic(fmt.Sprintf("agentcommand.Evolve does not know %T", e))
	}
	return s
}
