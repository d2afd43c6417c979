package commands

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// decisions is how often a verb is decided before a lost race is the caller's to handle: once, and three times more.
const decisions = 4

// loaded is an aggregate as its stream has it.
type loaded[S any] struct {
	state    S
	version  event.Version
	position event.Position
	at       time.Time
	ids      []uuid.UUID // of the stream's events, by version: shows whether a command was applied before
	size     int         // of the events' data, about
}

func (l loaded[S]) outcome() Outcome[S] {
	return Outcome[S]{State: l.state, Version: l.version, Position: l.position, At: l.at}
}

// request is one verb against one stream.
type request[S, C any, E event.Event] struct {
	decider   event.Decider[S, C, E]
	stream    event.Stream
	authorize func(S) error
	decide    func(S, event.Version) (C, error) // makes the command; may refuse
	meta      func(S) event.Meta                // tenant and subject of what is appended
}

// handle is the only place that decides and appends. The outcome of the same call.Command again is the first outcome.
//
// The first decision is made on the fold in memory, if there is one: an append at its version proves that it was current.
// Whatever else comes of that decision, a refusal or nothing to do, is decided again on what the stream holds; nothing to do is
// believed where the fold is as new as the context asks for (AsOf).
func handle[S, C any, E event.Event](ctx context.Context, s *Service, call Call, r request[S, C, E]) (Outcome[S], error) {
	left := decisions
	if now, known := cached[S](s.cache, r.stream); known {
		done, err := decideAuthorized(ctx, s, call, r, now)
		if err == nil && done.Version > now.version {
			return done, nil
		}
		if seen, level := remembered[S](ctx, s, r.stream); level && err == nil && seen.version == now.version {
			return done, nil
		}
		if lostRace(err) {
			left--
			s.cache.forget(r.stream)
		}
	}
	for range left {
		now, err := read(ctx, s, r.decider, r.stream)
		if err != nil {
			return Outcome[S]{}, err
		}
		done, err := decideAuthorized(ctx, s, call, r, now)
		if !lostRace(err) {
			return done, err
		}
		s.cache.forget(r.stream)
		if call.IfMatch != nil {
			var conflict *event.ConflictError
			errors.As(err, &conflict)
			return Outcome[S]{}, moved(*call.IfMatch, conflict.Actual)
		}
	}
	return Outcome[S]{}, fault.New(fault.Conflict, "%s changed %d times while the verb was decided", r.stream.ID(), decisions).
		WithRemedy("read the current state and decide again")
}

func lostRace(err error) bool {
	var conflict *event.ConflictError
	return errors.As(err, &conflict)
}

func decideAuthorized[S, C any, E event.Event](ctx context.Context, s *Service, call Call, r request[S, C, E], now loaded[S],
) (Outcome[S], error) {
	if err := r.authorize(now.state); err != nil {
		return Outcome[S]{}, err
	}
	if last := now.applied(r.stream, call.Command); last > 0 {
		return asOf(ctx, s, r.decider, r.stream, last)
	}
	return decideOnce(ctx, s, call, r, now)
}

func decideOnce[S, C any, E event.Event](ctx context.Context, s *Service, call Call, r request[S, C, E], now loaded[S],
) (Outcome[S], error) {
	if call.IfMatch != nil && *call.IfMatch != now.version {
		return Outcome[S]{}, moved(*call.IfMatch, now.version)
	}
	command, err := r.decide(now.state, now.version)
	if err != nil {
		return Outcome[S]{}, err
	}
	events, err := r.decider.Decide(now.state, command)
	if err != nil || len(events) == 0 {
		return now.outcome(), err
	}
	next := now
	next.state = r.decider.Fold(now.state, events...)
	meta := r.meta(next.state)
	meta.Command, meta.Principal = call.Command, principalOf(call.Actor)
	meta.At = s.clock().UTC().Truncate(time.Microsecond) // as the log keeps it
	meta.RequestID, meta.CorrelationID, meta.CausationID = call.RequestID, call.CorrelationID, call.CausationID
	meta.TraceParent = call.TraceParent

	stored := make([]event.Event, len(events))
	for i, e := range events {
		stored[i] = e
	}
	position, err := s.log.Append(ctx, r.stream, now.version, meta, stored...)
	if err != nil {
		return Outcome[S]{}, appendFault(err)
	}
	next.ids = slices.Clip(now.ids)
	for i := range events {
		next.ids = append(next.ids, meta.EventID(r.stream, i))
	}
	next.version += event.Version(len(events))
	next.position, next.at, next.size = position, meta.At, now.size+sizeOf(stored)
	if meta.Command != uuid.Nil { // fresh ids are the store's own: what it appended must be read to know them
		s.cache.put(r.stream, next, position)
	}
	return next.outcome(), nil
}

// sizeOf is what events take in a log, about.
func sizeOf(events []event.Event) (bytes int) {
	for _, e := range events {
		if data, err := json.Marshal(e); err == nil { // the log has taken it
			bytes += len(data)
		}
	}
	return bytes
}

// applied is the version of the last event that command appended to stream; zero where it appended none.
func (l loaded[S]) applied(stream event.Stream, command uuid.UUID) event.Version {
	if command == uuid.Nil {
		return 0
	}
	meta := event.Meta{Command: command}
	first := slices.Index(l.ids, meta.EventID(stream, 0))
	if first < 0 {
		return 0
	}
	last := first
	for last+1 < len(l.ids) && l.ids[last+1] == meta.EventID(stream, last+1-first) {
		last++
	}
	return event.Version(last + 1)
}

// load gives an aggregate as new as the context asks for.
func load[S, C any, E event.Event](ctx context.Context, s *Service, d event.Decider[S, C, E], stream event.Stream,
) (loaded[S], error) {
	if l, ok := remembered[S](ctx, s, stream); ok {
		return l, nil
	}
	return read(ctx, s, d, stream)
}

// read folds a stream, reading only what is newer than the cached fold.
func read[S, C any, E event.Event](ctx context.Context, s *Service, d event.Decider[S, C, E], stream event.Stream,
) (loaded[S], error) {
	l, ok := cached[S](s.cache, stream)
	if !ok {
		l = loaded[S]{state: d.Initial}
	}
	whole := s.cache.reading(stream)
	newer, err := s.log.Read(ctx, stream, l.version)
	if err != nil {
		return loaded[S]{}, readFault(err)
	}
	if l, err = fold(l, d, newer); err != nil {
		return loaded[S]{}, err
	}
	s.cache.put(stream, l, whole)
	return l, nil
}

// asOf folds a stream up to a version.
func asOf[S, C any, E event.Event](ctx context.Context, s *Service, d event.Decider[S, C, E], stream event.Stream,
	until event.Version,
) (Outcome[S], error) {
	events, err := s.log.Read(ctx, stream, 0)
	if err != nil {
		return Outcome[S]{}, readFault(err)
	}
	l, err := fold(loaded[S]{state: d.Initial}, d, events[:min(int(until), len(events))])
	return l.outcome(), err
}

func fold[S, C any, E event.Event](l loaded[S], d event.Decider[S, C, E], events []event.Recorded) (loaded[S], error) {
	l.ids = slices.Clip(l.ids)
	for _, r := range events {
		e, ok := r.Event.(E)
		if !ok {
			return l, fault.New(fault.Unavailable, "%s holds an event of type %s, which this version does not know",
				r.Stream.ID(), r.Type).WithRemedy("upgrade this replica to the version of the others")
		}
		l.state = d.Evolve(l.state, e)
		l.version, l.position, l.at = r.Version, r.Position, r.Meta.At
		l.ids = append(l.ids, r.ID)
		l.size += len(r.Data)
	}
	return l, nil
}

func principalOf(a Actor) string {
	switch {
	case !id.IsZero(a.Agent):
		return a.Agent.String()
	case a.System:
		return "system"
	}
	return a.Principal.String()
}

func moved(expected, actual event.Version) error {
	return fault.New(fault.Conflict, "the version is %d, not %d", actual, expected).
		WithDetail("version", uint64(actual)).WithRemedy("read the current state and decide again")
}

func readFault(err error) error {
	if fault.CodeOf(err) != fault.Internal {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "the event log could not be read")
}

// appendFault keeps a lost race recognizable for handle and gives everything else a code.
func appendFault(err error) error {
	var conflict *event.ConflictError
	var limit *event.LimitError
	switch {
	case errors.As(err, &conflict):
		return err
	case errors.As(err, &limit):
		return fault.New(fault.InvalidInput, "%s", limit.Reason)
	case errors.Is(err, event.ErrUnknownOutcome):
		return fault.Wrap(err, fault.Unavailable, "the connection to the event log broke; the verb may have been applied").
			WithRemedy("send the same request with the same Idempotency-Key, or read the current state")
	default:
		return fault.Wrap(err, fault.Unavailable, "the event log could not be written; nothing was changed")
	}
}
