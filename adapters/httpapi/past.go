package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/metalview"
)

// nodeAt answers with a machine as it was, to a caller who may see it as it is.
func (a *API) nodeAt(ctx context.Context, n id.Node, text string) (*answer, error) {
	if _, err := a.nodeRow(ctx, n); err != nil {
		return nil, err
	}
	moment, err := history.ParseMoment("query.at", text)
	if err != nil {
		return nil, err
	}
	then, err := history.At(ctx, a.store, n, moment, a.clock())
	if err != nil {
		return nil, logFault(err)
	}
	body, err := encode(metalview.Of(then.State, then.Version, then.Position, then.At))
	return &answer{ETag: etag(then.Version), Position: then.Position.String(), Body: body}, err
}

type listHistory struct {
	ID string `path:"id"`
	Fresh
	Paging
	Order string `query:"order" enum:"newest,oldest" doc:"newest first (default), or oldest first"`
}

var eventFields = fieldsOf(reflect.TypeFor[contract.Event]())

func (a *API) listHistory(ctx context.Context, in *listHistory) (*answer, error) {
	n, err := pathID[id.Node](in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx, metalview.Name, in.Fresh); err != nil {
		return nil, err
	}
	if err := a.current(ctx, history.Name, in.Fresh); err != nil {
		return nil, err
	}
	reached := a.waiter.Position(history.Name)
	if _, err := a.nodeRow(ctx, n); err != nil {
		return nil, err
	}
	order := history.NewestFirst
	if in.Order != "" {
		order = history.Order(in.Order)
	}
	entries, next, err := history.List(ctx, a.db, n, order, in.page())
	if err != nil {
		return nil, readFault(err)
	}
	items, err := encodeAll(entries, entryOf)
	if err != nil {
		return nil, err
	}
	return a.page(reached, items, next, in.Fields, eventFields)
}

// encodeAll writes each item as callers see it.
func encodeAll[T, C any](list []T, as func(T) C) ([]json.RawMessage, error) {
	items := make([]json.RawMessage, len(list))
	for i, item := range list {
		raw, err := encode(as(item))
		if err != nil {
			return nil, err
		}
		items[i] = raw[:len(raw)-1] // the encoder ends every value with a newline
	}
	return items, nil
}

type replayNode struct {
	ID string `path:"id"`
	Fresh
	Until string `query:"until" doc:"a time (RFC 3339) or a log position; left out: now"`
}

func (a *API) replayNode(ctx context.Context, in *replayNode) (*answer, error) {
	n, err := pathID[id.Node](in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx, metalview.Name, in.Fresh); err != nil {
		return nil, err
	}
	row, err := a.nodeRow(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := mayAudit(requestOf(ctx).who, projections.Place{Tenant: row.Place.Tenant}); err != nil {
		return nil, err
	}
	var until *history.Moment
	if in.Until != "" {
		moment, err := history.ParseMoment("query.until", in.Until)
		if err != nil {
			return nil, err
		}
		until = &moment
	}
	steps, err := history.Replay(ctx, a.store, n, until, a.clock())
	if err != nil {
		return nil, logFault(moved(err, "query.at", "query.until"))
	}
	return replayed(steps)
}

// moved gives the issues at one path another: what reads a moment knows it by one name only.
func moved(err error, from, to string) error {
	var f *fault.Error
	if errors.As(err, &f) {
		for i := range f.Issues {
			if f.Issues[i].Path == from {
				f.Issues[i].Path = to
			}
		}
	}
	return err
}

func replayed(steps []history.Step) (*answer, error) {
	replay := contract.Replay{Items: make([]contract.Step, len(steps))}
	var last event.Position
	for i, s := range steps {
		state, err := encode(s.State)
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		replay.Items[i], last = contract.Step{Event: eventOf(s.Event), State: state}, s.Event.Position
	}
	body, err := encode(replay)
	return &answer{Position: last.String(), Body: body}, err
}

// mayAudit refuses whoever may not audit what is at a place. It is asked only of those who may see it.
func mayAudit(who *Identity, at projections.Place) error {
	if who.Scope(principal.AuditRead).Reaches(at) {
		return nil
	}
	return fault.New(fault.Forbidden, "the credential does not allow %s here", principal.AuditRead).
		WithDetail("action", string(principal.AuditRead))
}

// eventOf is an event as callers see it.
func eventOf(e event.Recorded) contract.Event {
	return contract.Event{
		Position: uint64(e.Position), Stream: string(e.Stream), Version: uint64(e.Version), ID: e.ID.String(),
		Type: e.Type, Schema: e.Schema, At: e.At.UTC(), DecidedAt: e.Meta.At.UTC(), Tenant: e.Meta.Tenant,
		Subject: e.Meta.Subject, Principal: e.Meta.Principal, RequestID: e.Meta.RequestID,
		CorrelationID: e.Meta.CorrelationID, CausationID: e.Meta.CausationID, Data: e.Data,
	}
}

// entryOf is an entry of a history as callers see it.
func entryOf(e history.Entry) contract.Event {
	return contract.Event{
		Position: uint64(e.Position), Stream: string(e.Stream), Version: uint64(e.Version), ID: e.ID.String(),
		Type: e.Type, Schema: e.Schema, At: e.At, DecidedAt: e.DecidedAt, Tenant: e.Tenant, Subject: e.Subject, Principal: e.Principal,
		RequestID: e.RequestID, CorrelationID: e.CorrelationID, CausationID: e.CausationID, Data: e.Data,
	}
}
