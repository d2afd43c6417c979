package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

// ran stands for an event of a workflow, which names its node, or not.
type ran struct {
	Node string `json:"nodeId,omitempty"`
	Step string `json:"step,omitempty"`
}

func (ran) EventType() string { return "workflow.ran" }

// other is an event of something that belongs to no machine.
type other struct {
	Node string `json:"nodeId"`
}

func (other) EventType() string { return "other.happened" }

var (
	tenant = id.Of[id.Tenant](projectiontest.ID(1))
	site   = id.Of[id.Site](projectiontest.ID(1))
	pool   = id.Of[id.Pool](projectiontest.ID(1))
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func nodeID(n int) id.Node { return id.Of[id.Node](projectiontest.ID(n)) }

// log is a log whose clock goes on by a second with every append.
type log struct {
	*memory.Store
	now time.Time
}

func newLog(t testing.TB) *log {
	t.Helper()
	r, err := event.NewRegistry(node.Events, event.Table(
		event.Of[ran](1, "workflow.ran"), event.Of[other](1, "other.happened"),
	))
	if err != nil {
		t.Fatal(err)
	}
	l := &log{now: start}
	l.Store = memory.NewLog(func() time.Time { return l.now }).Open(r)
	return l
}

func (l *log) append(t testing.TB, s event.Stream, meta event.Meta, events ...event.Event) event.Position {
	t.Helper()
	held, err := l.Read(t.Context(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(time.Second)
	meta.At = l.now.Add(-time.Millisecond)
	p, err := l.Append(t.Context(), s, event.Version(len(held)), meta, events...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (l *log) enroll(t testing.TB, n int) {
	t.Helper()
	a := projectiontest.Enroll(n, tenant, site, pool, nil)
	l.append(t, a.Stream, event.Meta{}, a.Events...)
}

// fill makes a log of two machines with a workflow each and something else between.
func fill(t testing.TB) *log {
	t.Helper()
	l := newLog(t)
	l.enroll(t, 1)
	l.enroll(t, 2)
	l.append(t, "other-1", event.Meta{}, other{nodeID(1).String()})
	meta := event.Meta{
		Tenant: tenant.String(), Subject: "node/" + nodeID(1).String(), Principal: "prn_1", RequestID: "r", CorrelationID: "c",
		CausationID: "a\x00",
	}
	l.append(t, node.StreamOf(nodeID(1)), meta, node.Cordoned{Reason: "x\x00y"})
	l.append(t, "workflow-1", meta, ran{Step: "before it names its node"})
	l.append(t, "workflow-1", meta, ran{Node: nodeID(1).String()}, ran{Step: "one"})
	l.append(t, "agentcommand-2", event.Meta{}, ran{Node: nodeID(2).String()})
	l.append(t, "workflow-1", meta, ran{Step: "two"})
	l.append(t, node.StreamOf(nodeID(2)), event.Meta{}, node.Uncordoned{})
	return l
}

func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	projectiontest.Run(t, pgtest.New(t), fill(t), history.New())
}

func pages(t *testing.T, db projections.DB, n id.Node, order history.Order, limit int) (types []string, entries []history.Entry) {
	t.Helper()
	page := projections.Page{Limit: limit}
	for {
		some, next, err := history.List(t.Context(), db, n, order, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some {
			types = append(types, fmt.Sprintf("%s %d", e.Type, e.Version))
		}
		if entries = append(entries, some...); next == "" {
			return types, entries
		}
		page.Cursor = next
	}
}

func TestListIsInCausalOrder(t *testing.T) {
	db, l := pgtest.New(t), fill(t)
	projectiontest.CatchUp(t, db, l, history.New())
	want := []string{
		"node.enrolled 1", "node.provision.enrolling 2", "node.cordon.set 3", "workflow.ran 2", "workflow.ran 3", "workflow.ran 4",
	}
	for _, limit := range []int{1, 4, 0} {
		got, entries := pages(t, db, nodeID(1), history.OldestFirst, limit)
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %q, want %q", limit, got, want)
		}
		e := entries[2]
		if e.Principal != "prn_1" || e.RequestID != "r" || e.CorrelationID != "c" || e.CausationID != "a\uFFFD" ||
			e.Tenant != tenant.String() || e.At.Sub(e.DecidedAt) != time.Millisecond || e.Stream != node.StreamOf(nodeID(1)) {
			t.Errorf("envelope %+v", e)
		}
		var data node.Cordoned
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Reason != "x\x00y" {
			t.Errorf("data %s: %v", e.Data, err)
		}
		got, _ = pages(t, db, nodeID(1), history.NewestFirst, limit)
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("newest first, limit %d: %q", limit, got)
		}
	}
	chain, err := history.Chain(t.Context(), db, nodeID(1), "c")
	if err != nil || len(chain) != 4 || chain[0].Type != "node.cordon.set" {
		t.Errorf("chain %+v, %v", chain, err)
	}
	_, next, err := history.List(t.Context(), db, nodeID(1), history.NewestFirst, projections.Page{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, cursor := range []string{"?", next, projections.Cursor("history-oldest", "x")} {
		_, _, err := history.List(t.Context(), db, nodeID(1), history.OldestFirst, projections.Page{Cursor: cursor})
		if fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("cursor %q: %v, want INVALID_INPUT", cursor, err)
		}
	}
}

// P5: the state at every position and time is the fold of what had happened by then.
func TestAtIsTheFoldAtEveryPrefix(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLog(t)
		l.enroll(t, 7)
		l.enroll(t, 1)
		for range rapid.IntRange(0, 10).Draw(rt, "events") {
			l.append(t, node.StreamOf(nodeID(1)), event.Meta{}, projectiontest.Event(rt, nodeID(1)))
			l.append(t, "other-1", event.Meta{}, other{})
		}
		held, err := l.Read(t.Context(), node.StreamOf(nodeID(1)), 0)
		if err != nil {
			rt.Fatal(err)
		}
		steps, err := history.Replay(t.Context(), l, nodeID(1), nil, l.now)
		if err != nil || len(steps) != len(held) {
			rt.Fatal(len(steps), err)
		}
		var s node.State
		for i, e := range held {
			s = node.Evolve(s, e.Event.(node.Event))
			if diff := cmp.Diff(asJSON(rt, s), asJSON(rt, steps[i].State)); diff != "" {
				rt.Fatal(diff)
			}
			if !s.Exists() || i+1 < len(held) && held[i+1].At.Equal(e.At) {
				continue
			}
			for _, m := range []history.Moment{{Position: e.Position}, {Time: e.At}, {Time: e.At.Add(time.Millisecond)}} {
				then, err := history.At(t.Context(), l, nodeID(1), m, l.now.Add(time.Hour))
				if err != nil || then.Version != e.Version || then.Position != e.Position || !then.At.Equal(e.Meta.At) {
					rt.Fatalf("%+v: %+v, %v", m, then, err)
				}
				if diff := cmp.Diff(asJSON(rt, s), asJSON(rt, then.State)); diff != "" {
					rt.Fatal(diff)
				}
			}
		}
	})
}

func asJSON(t *rapid.T, v any) string {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestMomentsOutsideTheLog(t *testing.T) {
	l := fill(t)
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		node   int
		moment history.Moment
		code   fault.Code
		says   string
	}{
		"before the first event":  {2, history.Moment{Position: 1}, fault.NotFound, "position 4"},
		"before, by time":         {2, history.Moment{Time: start}, fault.NotFound, "2026-01-01T00:00:01.999Z"},
		"beyond the end":          {1, history.Moment{Position: head + 1}, fault.InvalidInput, "position " + head.String()},
		"in the future":           {1, history.Moment{Time: l.now.Add(time.Minute)}, fault.InvalidInput, "position " + head.String()},
		"a node that never was":   {9, history.Moment{Position: 1}, fault.NotFound, nodeID(9).String()},
		"half of its enrollment":  {1, history.Moment{Position: 1}, fault.NotFound, "position 2"},
		"the whole of it":         {1, history.Moment{Position: 2}, "", ""},
		"now":                     {1, history.Moment{Time: l.now}, "", ""},
		"at the end, by position": {1, history.Moment{Position: head}, "", ""},
	} {
		_, err := history.At(t.Context(), l, nodeID(c.node), c.moment, l.now)
		if fault.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s saying %q", name, err, c.code, c.says)
		}
	}
	until := history.Moment{Position: 4}
	if steps, err := history.Replay(t.Context(), l, nodeID(2), &until, l.now); err != nil || len(steps) != 2 {
		t.Errorf("replay until: %d steps, %v", len(steps), err)
	}
	if _, err := history.Replay(t.Context(), l, nodeID(9), nil, l.now); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("replay of nothing: %v", err)
	}
}

func TestParseMoment(t *testing.T) {
	for text, want := range map[string]history.Moment{
		"12":                          {Position: 12},
		"2026-01-01T01:00:00+01:00":   {Time: start},
		"2026-01-01T00:00:00.000001Z": {Time: start.Add(time.Microsecond)},
	} {
		if m, err := history.ParseMoment("query.at", text); err != nil || m.Position != want.Position || !m.Time.Equal(want.Time) {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "yesterday", "99999999999999999999", "2026-01-01"} {
		_, err := history.ParseMoment("query.at", text)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.InvalidInput || f.Issues[0].Path != "query.at" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// tampered is a log in which some events were changed or removed.
type tampered struct {
	event.Store
	change func(*event.Recorded) (keep bool)
}

func (s tampered) ReadAll(
	ctx context.Context, after event.Position, types []string, limit int,
) ([]event.Recorded, event.Position, error) {
	events, head, err := s.Store.ReadAll(ctx, after, types, limit)
	return s.tamper(events), head, err
}

func (s tampered) Read(ctx context.Context, stream event.Stream, after event.Version) ([]event.Recorded, error) {
	events, err := s.Store.Read(ctx, stream, after)
	return s.tamper(events), err
}

func (s tampered) tamper(events []event.Recorded) []event.Recorded {
	var kept []event.Recorded
	for _, e := range events {
		if s.change(&e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func TestAuditFindsWhatWasChanged(t *testing.T) {
	l := fill(t)
	clean, err := history.VerifyAll(t.Context(), l, nil, nil)
	if err != nil || len(clean.Problems) != 0 || len(clean.Heads) != 5 || clean.Digest != history.Digest(clean.Heads) {
		t.Fatalf("clean: %+v, %v", clean, err)
	}
	if again, err := history.VerifyAll(t.Context(), l, clean.Heads, nil); err != nil || len(again.Problems) != 0 {
		t.Errorf("against its own heads: %+v, %v", again.Problems, err)
	}
	stream := node.StreamOf(nodeID(1))
	first := func(e *event.Recorded) bool { return e.Stream == stream && e.Version == 1 }
	for name, c := range map[string]struct {
		change func(*event.Recorded) bool
		kept   []history.Head
		want   []history.Problem
	}{
		"changed": {func(e *event.Recorded) bool {
			if first(e) {
				e.Hash[0]++
			}
			return true
		}, nil, []history.Problem{{Stream: stream, Version: 2, Reason: "its predecessor was changed or replaced"}}},
		"removed": {func(e *event.Recorded) bool { return !first(e) }, nil,
			[]history.Problem{{Stream: stream, Version: 1, Reason: "missing: the next event is version 2"}}},
		"cut off": {func(e *event.Recorded) bool { return e.Stream != stream || e.Version < 3 }, clean.Heads,
			[]history.Problem{{Stream: stream, Version: 3, Reason: "missing: the kept head vouches for it"}}},
		"last one changed": {func(e *event.Recorded) bool {
			if e.Stream == stream && e.Version == 3 {
				e.Hash[0]++
			}
			return true
		}, clean.Heads, []history.Problem{{Stream: stream, Version: 3, Reason: "it is not the event that the kept head vouches for"}}},
	} {
		s := tampered{l, c.change}
		a, err := history.VerifyAll(t.Context(), s, c.kept, nil)
		if diff := cmp.Diff(c.want, a.Problems); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
		if a.Digest == clean.Digest && name != "changed" && name != "removed" {
			t.Errorf("%s: the digest is the same", name)
		}
		_, err = history.VerifyStream(t.Context(), s, stream)
		if broken := history.Broken(err); broken != (c.kept == nil) {
			t.Errorf("%s: stream: %v", name, err)
		}
	}
	head, err := history.VerifyStream(t.Context(), l, stream)
	if err != nil || !slices.Contains(clean.Heads, head) {
		t.Errorf("head %+v, %v", head, err)
	}
	if _, err := history.VerifyStream(t.Context(), l, "node-none"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("no stream: %v", err)
	}
}
