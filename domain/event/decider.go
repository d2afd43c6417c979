package event

// Decider is an aggregate as three values. Decide turns a verb into events or refuses it; Evolve folds one event into the
// state. Both are pure: time, ids and whatever else the world knows come in with the command.
type Decider[S, C any, E Event] struct {
	Initial S
	Decide  func(S, C) ([]E, error)
	Evolve  func(S, E) S
}

// Fold gives the state after events.
func (d Decider[S, C, E]) Fold(state S, events ...E) S {
	for _, e := range events {
		state = d.Evolve(state, e)
	}
	return state
}
