package agentapi

import (
	"slices"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/agentqueue"
)

// place is whose orders they are: a site's, or those of a machine's agent in one role.
type place struct {
	role agentcommand.Role
	id   string
}

func placeOf(r agentqueue.Row) place {
	if r.Role == agentcommand.RoleSite {
		return place{r.Role, r.Site}
	}
	return place{r.Role, r.Node}
}

// order is an agent command that is not over.
type order struct {
	row      agentqueue.Row
	taken    bool      // a poll of this process is handing it out
	gone     bool      // another process has it, which the log will tell soon
	offered  time.Time // when it was last given to the agent; zero: this process did not
	since    time.Time // when this process heard of it; zero: it was there before
	acked    time.Time // since when this process knows that it is in the agent's journal; zero: it does not
	position event.Position
}

// queue is the agent commands that are not over, folded from the log in memory, and the polls that wait for them. It is what
// a poll looks at: it costs no query, and what it says is proven by the append that hands an order out.
type queue struct {
	mu     sync.Mutex
	orders map[string]*order            // by id
	places map[place]map[string]*order  // that nobody has
	held   map[string]map[string]*order // by agent
	polls  map[string]*poll             // by agent: the newest
	byHome map[place]map[*poll]struct{}
	filled chan struct{} // holds a value while there are orders that nobody has looked through since
}

// poll is one poll that waits.
type poll struct {
	agent    string
	home     place
	wake     chan struct{} // of capacity 1
	replaced chan struct{} // closed when the agent polls anew
}

func newQueue() *queue {
	return &queue{
		orders: map[string]*order{}, places: map[place]map[string]*order{}, held: map[string]map[string]*order{},
		polls: map[string]*poll{}, byHome: map[place]map[*poll]struct{}{}, filled: make(chan struct{}, 1),
	}
}

// reset takes the queue as a snapshot has it.
func (q *queue) reset(rows []agentqueue.Row, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.orders)
	clear(q.places)
	clear(q.held)
	for _, r := range rows {
		q.set((&order{row: r, position: r.Position}).inJournal(now))
	}
	for _, p := range q.polls {
		p.nudge()
	}
}

// apply folds events of the log.
func (q *queue) apply(events []event.Recorded, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range events {
		q.fold(e, now)
	}
}

func (q *queue) fold(e event.Recorded, now time.Time) {
	o := q.orders[e.Stream.ID()]
	if o == nil {
		row := (*agentqueue.Row)(nil).With(e)
		if row != nil {
			q.set(&order{row: *row, position: e.Position, since: now})
		}
		return
	}
	if e.Position <= o.position {
		return
	}
	row := o.row.With(e)
	q.drop(o)
	if row == nil {
		q.wakeAgent(o.row.Agent) // it may have to stop
		return
	}
	next := &order{row: *row, position: e.Position, taken: o.taken, offered: o.offered, since: o.since, acked: o.acked}
	if next.row.Agent != "" && next.offered.IsZero() { // another gateway gave it out: it is given time to arrive
		next.offered = now
	}
	q.set(next.inJournal(now))
}

// set files an order and wakes who may take it; the caller holds the lock.
func (q *queue) set(o *order) {
	q.orders[o.row.Command] = o
	nudge(q.filled)
	if o.row.Agent != "" {
		put(q.held, o.row.Agent, o)
		return
	}
	home := placeOf(o.row)
	put(q.places, home, o)
	for p := range q.byHome[home] {
		p.nudge()
	}
}

func put[K comparable](in map[K]map[string]*order, key K, o *order) {
	if in[key] == nil {
		in[key] = map[string]*order{}
	}
	in[key][o.row.Command] = o
}

// drop takes an order out; the caller holds the lock.
func (q *queue) drop(o *order) {
	delete(q.orders, o.row.Command)
	remove(q.held, o.row.Agent, o)
	remove(q.places, placeOf(o.row), o)
}

func remove[K comparable](in map[K]map[string]*order, key K, o *order) {
	delete(in[key], o.row.Command)
	if len(in[key]) == 0 {
		delete(in, key)
	}
}

// nudge wakes the poll of an agent.
func (q *queue) nudge(agent string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeAgent(agent)
}

func (q *queue) wakeAgent(agent string) {
	if p := q.polls[agent]; p != nil {
		p.nudge()
	}
}

func (p *poll) nudge() { nudge(p.wake) }

// stir has the orders looked through again, if there are any.
func (q *queue) stir() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.orders) > 0 {
		nudge(q.filled)
	}
}

// wait registers a poll. An earlier one of the same agent ends: its connection may be dead.
func (q *queue) wait(agent string, home place) *poll {
	p := &poll{agent: agent, home: home, wake: make(chan struct{}, 1), replaced: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	if before := q.polls[agent]; before != nil {
		q.leave(before)
		close(before.replaced)
	}
	q.polls[agent] = p
	if q.byHome[home] == nil {
		q.byHome[home] = map[*poll]struct{}{}
	}
	q.byHome[home][p] = struct{}{}
	return p
}

// done takes a poll out.
func (q *queue) done(p *poll) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.polls[p.agent] == p {
		q.leave(p)
	}
}

// leave is done with the lock held.
func (q *queue) leave(p *poll) {
	delete(q.polls, p.agent)
	delete(q.byHome[p.home], p)
	if len(q.byHome[p.home]) == 0 {
		delete(q.byHome, p.home)
	}
}

// waiting is how many polls wait.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.polls)
}

// take reserves up to room orders for a boot of an agent, oldest first: those that nobody has, and those that it was given
// and never acknowledged, which may not have arrived. Orders that it says it works on are not given again.
func (q *queue) take(agent, bootID string, home place, t turn, room int, doing []string, now time.Time, patience time.Duration,
) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var found []*order
	for _, o := range q.held[agent] {
		lost := o.row.BootID == bootID && o.row.Status == agentcommand.Dispatched && now.Sub(o.offered) >= patience
		if lost && !o.taken && !slices.Contains(doing, o.row.Command) {
			found = append(found, o)
		}
	}
	for _, o := range q.places[home] {
		if from, ok := t.from(o); ok && !now.Before(from) && !o.taken && !o.gone {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *order) int {
		return compare(a.row.Position, b.row.Position)
	})
	found = found[:min(len(found), max(room, 0))]
	ids := make([]string, len(found))
	for i, o := range found {
		o.taken, ids[i] = true, o.row.Command
	}
	return ids
}

func compare(a, b event.Position) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// what became of a reservation.
type taking int

const (
	given     taking = iota // the agent is answered with it
	elsewhere               // another process has it, or it is over
	failed                  // nothing is known: another poll may try
)

// release ends a reservation.
func (q *queue) release(command string, as taking, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.orders[command]
	if o == nil {
		return
	}
	o.taken = false
	switch as {
	case given:
		o.offered = now
	case elsewhere:
		o.gone = true
	case failed:
		if o.row.Agent == "" {
			for p := range q.byHome[placeOf(o.row)] {
				p.nudge()
			}
		}
	}
}

// lost says that an answer with orders did not reach the agent.
func (q *queue) lost(commands []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, command := range commands {
		if o := q.orders[command]; o != nil {
			o.offered = time.Time{}
		}
	}
}

// handed notes at once what the log will tell soon.
func (q *queue) handed(s agentcommand.State, at event.Position, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.orders[s.AgentCommand.String()]
	if o == nil || o.position >= at {
		return
	}
	q.drop(o)
	if s.Status.Settled() {
		q.wakeAgent(o.row.Agent)
		return
	}
	next := *o
	next.position = at
	next.row.Status, next.row.BootID = s.Status, s.BootID
	if !id.IsZero(s.Agent) {
		next.row.Agent = s.Agent.String()
	}
	q.set(next.inJournal(now))
}

// with tells whether a boot of an agent has an order, and where it stands.
func (q *queue) with(command, agent, bootID string) (agentcommand.Status, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.orders[command]
	if o == nil || o.row.Agent != agent || o.row.BootID != bootID {
		return "", false
	}
	return o.row.Status, true
}

// missing lists those of an agent's orders that the queue does not know to be with this boot of it.
func (q *queue) missing(doing []string, agent, bootID string) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var gone []string
	for _, command := range doing {
		if o := q.orders[command]; o == nil || o.row.Agent != agent || o.row.BootID != bootID {
			gone = append(gone, command)
		}
	}
	return gone
}

// ofOtherBoots lists what another boot of the agent was given.
func (q *queue) ofOtherBoots(agent, bootID string) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var old []string
	for command, o := range q.held[agent] {
		if o.row.BootID != bootID {
			old = append(old, command)
		}
	}
	return old
}

// overdue lists what has passed its deadline, a thousand at most.
func (q *queue) overdue(now time.Time) []string {
	const most = 1000
	q.mu.Lock()
	defer q.mu.Unlock()
	var late []string
	for command, o := range q.orders {
		if now.After(o.row.NotAfter) {
			if late = append(late, command); len(late) == most {
				break
			}
		}
	}
	return late
}

// next is when an order is due to be offered to the agent, again or because its turn comes; zero: none is.
func (q *queue) next(agent, bootID string, home place, t turn, doing []string, patience time.Duration) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	var due time.Time
	for _, o := range q.held[agent] {
		if o.row.BootID != bootID || o.row.Status != agentcommand.Dispatched || slices.Contains(doing, o.row.Command) {
			continue
		}
		if at := o.offered.Add(patience); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if !t.second {
		return due
	}
	for _, o := range q.places[home] {
		if at, ok := t.from(o); ok && !o.taken && !o.gone && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}
