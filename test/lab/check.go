package lab

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
)

// Logged is one event of the log, with what it says.
type Logged struct {
	contract.AuditEvent
	Event event.Event
}

// Log is the whole log.
func (l *Lab) Log() (all []Logged) {
	l.T.Helper()
	registry, err := commands.Registry()
	l.must(err)
	for e, err := range l.Client.AuditLog(l.T.Context(), 0) {
		l.must(err)
		decoded, err := registry.Decode(e.Type, e.Schema, e.Data)
		l.must(err)
		all = append(all, Logged{e, decoded})
	}
	return all
}

// Verify checks everything that must hold of any run: read models and log hold together; no machine became ready without a
// proven wipe; no node had two workflows at a time; no order that destroys was carried out twice.
func (l *Lab) Verify() {
	l.T.Helper()
	log := l.Log()
	l.readyIsWiped(log)
	l.oneWorkflow(log)
	l.destroyedOnce(log)
	began := time.Now()
	defer func() { l.T.Logf("verify: %s of %d events", time.Since(began), len(log)) }()
	if out, err := l.Metald("projections", "verify"); err != nil {
		l.T.Errorf("the read models are not what the log says: %v\n%s", err, out)
	}
	if out, err := l.Metalctl("audit", "verify"); err != nil {
		l.T.Errorf("the log does not hold together: %v\n%s", err, out)
	}
}

// readyIsWiped is the rule about entries to ready: since the machine was last anybody's, every disk of its latest inventory was
// wiped, read back, and the machine signed for it.
func (l *Lab) readyIsWiped(log []Logged) {
	l.T.Helper()
	states := map[string]node.State{}
	for _, e := range log {
		of, ok := e.Event.(node.Event)
		if !ok {
			continue
		}
		state := node.Evolve(states[e.Stream], of)
		states[e.Stream] = state
		moved, ok := of.(node.Moved)
		if !ok || moved.To != node.Ready {
			continue
		}
		if moved.From != node.Commissioning && moved.From != node.Releasing {
			l.T.Errorf("%s came to ready from %s, at %d", e.Stream, moved.From, e.Position)
		}
		if !state.WipeVerified() {
			l.T.Errorf("%s is ready without a proven wipe, at %d: %+v", e.Stream, e.Position, state.Wipe)
		}
	}
}

// oneWorkflow is the rule that a node has one active workflow at most.
func (l *Lab) oneWorkflow(log []Logged) {
	l.T.Helper()
	active := map[id.Node]id.Workflow{}
	begin := func(e Logged, ref workflow.Ref) {
		if other, is := active[ref.Node]; is && other != ref.Workflow {
			l.T.Errorf("%s has %s and %s at once, at %d", ref.Node, other, ref.Workflow, e.Position)
		}
		active[ref.Node] = ref.Workflow
	}
	for _, e := range log {
		switch ev := e.Event.(type) {
		case workflow.Created:
			begin(e, ev.Ref)
		case workflow.RetriedRun:
			begin(e, ev.Ref)
		case workflow.Ended:
			if active[ev.Node] == ev.Workflow {
				delete(active, ev.Node)
			}
		}
	}
}

// destroyedOnce compares what machines did with what they were ordered: no order that destroys was begun twice, by whatever
// boot, and each that was begun is in the log as handed out to that boot.
func (l *Lab) destroyedOnce(log []Logged) {
	l.T.Helper()
	handed := map[string]string{} // the boot of each order
	for _, e := range log {
		if ev, ok := e.Event.(agentcommand.HandedOut); ok {
			_, order, _ := strings.Cut(e.Stream, "-")
			if other, twice := handed[order]; twice && other != ev.BootID {
				l.T.Errorf("%s was handed to the boots %s and %s", order, other, ev.BootID)
			}
			handed[order] = ev.BootID
		}
	}
	if l.Sim == nil {
		return // what real machines began to carry out is not known from outside
	}
	for _, name := range l.enrolled() {
		begun := map[string]sim.Ordered{}
		for _, o := range l.Orders(name) {
			kind, known := agentcommand.Find(agentcommand.Kinds, o.Kind)
			if known && !kind.Destructive {
				continue
			}
			if before, twice := begun[o.ID]; twice {
				l.T.Errorf("%s carried %s %s out twice: at %s and %s", name, o.Kind, o.ID, before.At, o.At)
			}
			begun[o.ID] = o
			if handed[o.ID] != o.BootID {
				l.T.Errorf("%s carried %s %s out in boot %s; the log knows of %q", name, o.Kind, o.ID, o.BootID, handed[o.ID])
			}
		}
	}
}

// Secret is something that must stay where it was put.
type Secret struct{ What, Value string }

// Keeps looks for secrets in the log, in every row of the database, in what the programs said, and in further texts.
func (l *Lab) Keeps(secrets []Secret, further map[string][]byte) {
	l.T.Helper()
	places := map[string][]byte{"bcd's log": []byte(l.SiteAgent.Said())}
	for i, p := range l.Planes {
		places[fmt.Sprintf("the log of metald %d", i)] = []byte(p.Said())
	}
	for what, text := range further {
		places[what] = text
	}
	for _, e := range l.Log() {
		places[fmt.Sprintf("event %d (%s)", e.Position, e.Type)] = append(append([]byte{}, e.Data...), e.Meta...)
	}
	l.rows(func(table, row string) { places["a row of "+table] = append(places["a row of "+table], row...) })
	for _, s := range secrets {
		if len(s.Value) < 8 {
			l.T.Fatalf("%s is too short to be looked for", s.What)
		}
		coded := hex.EncodeToString([]byte(s.Value)) // as PostgreSQL shows bytes
		for place, text := range places {
			if bytes.Contains(text, []byte(s.Value)) || bytes.Contains(text, []byte(coded)) {
				l.T.Errorf("%s is in %s", s.What, place)
			}
		}
	}
}

// rows gives every row of every table as text.
func (l *Lab) rows(give func(table, row string)) {
	l.T.Helper()
	ctx := context.Background()
	db, err := pgx.Connect(ctx, l.DSN)
	l.must(err)
	defer func() { _ = db.Close(ctx) }() // it was read
	found, err := db.Query(ctx, `SELECT relname FROM pg_stat_user_tables ORDER BY relname`)
	l.must(err)
	tables, err := pgx.CollectRows(found, pgx.RowTo[string])
	l.must(err)
	for _, table := range tables {
		found, err := db.Query(ctx, "SELECT t::text FROM "+pgx.Identifier{table}.Sanitize()+" t")
		l.must(err)
		rows, err := pgx.CollectRows(found, pgx.RowTo[string])
		l.must(err)
		for _, row := range rows {
			give(table, row)
		}
	}
	if len(tables) < 10 {
		l.T.Errorf("only %d tables were looked at", len(tables))
	}
}
