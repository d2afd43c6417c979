package bootlease_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

var (
	noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	site = id.Of[id.Site](numbered(1))
)

func numbered(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n))) }

func agent(n int) id.Agent { return id.Of[id.Agent](numbered(n)) }

// of is a lease of an agent's boot b1 in term 3.
func of(n int, until time.Time) bootlease.Lease {
	return bootlease.Lease{Site: site, Agent: agent(n), BootID: "b1", Term: 3, Until: until, Revision: 9}
}

func TestWhoGetsTheLease(t *testing.T) {
	const a, b = 1, 2
	soon, over := noon.Add(time.Second), noon.Add(-time.Second)
	for name, test := range map[string]struct {
		before bootlease.Lease
		by     int
		boot   string
		held   bool
		term   int64
		until  time.Time
	}{
		"nobody had it":                   {bootlease.Lease{Site: site}, a, "b1", true, 1, noon.Add(bootlease.TTL)},
		"the holder renews":               {of(a, soon), a, "b1", true, 3, noon.Add(bootlease.TTL)},
		"the holder renews late":          {of(a, over), a, "b1", true, 3, noon.Add(bootlease.TTL)},
		"the holder's next boot":          {of(a, soon), a, "b2", true, 3, noon.Add(bootlease.TTL)},
		"another asks while it is held":   {of(a, soon), b, "b1", false, 3, soon},
		"another asks at its last moment": {of(a, noon.Add(1)), b, "b1", false, 3, noon.Add(1)},
		"another takes it at its end":     {of(a, noon), b, "b1", true, 4, noon.Add(bootlease.TTL)},
		"another takes it after":          {of(a, over), b, "b1", true, 4, noon.Add(bootlease.TTL)},
		"what was promised stays":         {of(a, noon.Add(time.Minute)), a, "b1", true, 3, noon.Add(time.Minute)},
	} {
		got, held := test.before.Claimed(agent(test.by), test.boot, noon)
		if held != test.held || got.Term != test.term || !got.Until.Equal(test.until) || got.Revision != test.before.Revision {
			t.Errorf("%s: %+v, %t", name, got, held)
		}
		if held && (got.Agent != agent(test.by) || got.BootID != test.boot) {
			t.Errorf("%s: it is with %s in boot %s", name, got.Agent, got.BootID)
		}
	}
}

func TestGivenBackAndWindow(t *testing.T) {
	l := of(1, noon.Add(8*time.Second))
	if got, changed := l.Released(agent(2), noon); changed || got != l {
		t.Errorf("given back by another: %+v", got)
	}
	free, changed := l.Released(agent(1), noon)
	if !changed || free.Held(noon) || free.Term != l.Term {
		t.Errorf("given back: %+v", free)
	}
	if _, changed := free.Released(agent(1), noon); changed {
		t.Error("given back twice")
	}
	if taken, held := free.Claimed(agent(2), "b1", noon); !held || taken.Term != 4 {
		t.Errorf("taken at once: %+v", taken)
	}
	for name, test := range map[string]struct {
		by    int
		boot  string
		asked time.Time
		want  time.Duration
	}{
		"the holder":            {1, "b1", noon, 8*time.Second - bootlease.Guard},
		"having asked early":    {1, "b1", noon.Add(-2 * time.Second), 10*time.Second - bootlease.Guard},
		"another boot of it":    {1, "b2", noon, 0},
		"another agent":         {2, "b1", noon, 0},
		"having asked long ago": {1, "b1", noon.Add(-20 * time.Second), 0},
		"too late":              {1, "b1", noon.Add(8 * time.Second), 0},
	} {
		if got := l.Window(agent(test.by), test.boot, test.asked); got != test.want {
			t.Errorf("%s may serve for %s, want %s", name, got, test.want)
		}
	}
}

// What is drawn is a site with gateways whose clocks differ, and agents whose clocks run at different speeds, show any time, and
// whose polls are answered late or never. However agents poll, die, are cut off and come back: at no moment do two of them serve.
func TestNeverTwoHolders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{row: bootlease.Lease{Site: site}}
		for range rapid.IntRange(1, 3).Draw(t, "gateways") {
			// Two gateways may differ by as much as the guard leaves beside what clocks run apart.
			w.gateways = append(w.gateways, &gateway{off: time.Duration(rapid.IntRange(-350, 350).Draw(t, "off")) * time.Millisecond})
		}
		for n := range rapid.IntRange(2, 4).Draw(t, "agents") {
			w.agents = append(w.agents, &server{
				n: n + 1, boot: "b1",
				rate: 1 + float64(rapid.IntRange(-10, 10).Draw(t, "rate"))/1000,
				zero: noon.Add(time.Duration(rapid.IntRange(-1e6, 1e6).Draw(t, "zero")) * time.Second),
			})
		}
		for range rapid.IntRange(10, 200).Draw(t, "moves") {
			w.pass(t)
			w.check(t)
			w.move(t)
			w.check(t)
		}
	})
}

// world has a real time, now, that nobody knows.
type world struct {
	now      time.Duration
	row      bootlease.Lease
	gateways []*gateway
	agents   []*server
}

// gateway knows the row as it read it last.
type gateway struct {
	off  time.Duration
	read bootlease.Lease
}

// server is an agent with its own clock.
type server struct {
	n     int
	boot  string
	rate  float64
	zero  time.Time
	until time.Time // by its clock
	polls []poll    // that are not answered
}

type poll struct {
	at      *gateway
	sent    time.Time // by the agent's clock
	arrived time.Time // by the gateway's
}

func (w *world) clockOf(g *gateway) time.Time { return noon.Add(w.now + g.off) }

func (w *world) clock(s *server) time.Time { return s.zero.Add(time.Duration(float64(w.now) * s.rate)) }

func (w *world) check(t *rapid.T) {
	var serving []int
	for _, s := range w.agents {
		if w.clock(s).Before(s.until) {
			serving = append(serving, s.n)
		}
	}
	if len(serving) > 1 {
		t.Fatalf("after %s the agents %v serve; the row is %+v", w.now, serving, w.row)
	}
}

// pass lets time go by: some, or until just then when the lease is over by the clock of a gateway.
func (w *world) pass(t *rapid.T) {
	some := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 500, 2000, 4000, 8900, 10000}).Draw(t, "pass")) * time.Millisecond
	if rapid.IntRange(0, 2).Draw(t, "to") == 0 {
		g := rapid.SampledFrom(w.gateways).Draw(t, "whose end")
		some = max(w.row.Until.Sub(w.clockOf(g)), 0)
	}
	w.now += some
}

// swap is what the database does.
func (w *world) swap(g *gateway, next bootlease.Lease) {
	if next.Revision == w.row.Revision {
		next.Revision++
		w.row = next
	}
	g.read = w.row
}

func (w *world) move(t *rapid.T) {
	s := rapid.SampledFrom(w.agents).Draw(t, "agent")
	g := rapid.SampledFrom(w.gateways).Draw(t, "gateway")
	switch rapid.SampledFrom([]string{"poll", "poll", "poll", "write", "write", "write", "answer", "answer", "read", "lose", "restart", "release", "round", "round", "round"}).Draw(t, "move") {
	case "round": // as it goes when nothing is in the way
		p := poll{at: g, sent: w.clock(s), arrived: w.clockOf(g)}
		g.read = w.row
		if next, held := g.read.Claimed(agent(s.n), s.boot, w.clockOf(g)); held {
			w.swap(g, next)
		}
		w.answer(s, p)
	case "poll":
		s.polls = append(s.polls, poll{at: g, sent: w.clock(s), arrived: w.clockOf(g)})
	case "write": // with what the gateway remembers, which may be old
		if next, held := g.read.Claimed(agent(s.n), s.boot, w.clockOf(g)); held {
			w.swap(g, next)
		}
	case "read":
		g.read = w.row
	case "answer": // of any poll that waits, also of an old one
		if len(s.polls) == 0 {
			return
		}
		i := rapid.IntRange(0, len(s.polls)-1).Draw(t, "poll")
		p := s.polls[i]
		s.polls = append(s.polls[:i:i], s.polls[i+1:]...)
		w.answer(s, p)
	case "lose":
		s.polls = nil
	case "restart": // it serves no more, and its polls are nobody's
		s.boot, s.until, s.polls = s.boot+"'", time.Time{}, nil
	case "release": // stops first, says so then
		s.until, s.polls = time.Time{}, nil
		if next, changed := g.read.Released(agent(s.n), w.clockOf(g)); changed {
			w.swap(g, next)
		}
	}
}

func (w *world) answer(s *server, p poll) {
	s.until = time.Time{}
	if window := p.at.read.Window(agent(s.n), s.boot, p.arrived); window > 0 {
		s.until = p.sent.Add(window)
	}
}

func TestWhatTheLogKeeps(t *testing.T) {
	taken := func(n int, term int64) bootlease.Command {
		return bootlease.Take{Facts: bootlease.Taken{Site: site, Agent: agent(n), Term: term, At: noon}}
	}
	complete := func(term int64) bootlease.Command {
		return bootlease.Complete{Facts: bootlease.Completed{Site: site, Term: term, Entries: 2}}
	}
	release := func(n int, term int64) bootlease.Command {
		return bootlease.Release{Facts: bootlease.Released{Site: site, Agent: agent(n), Term: term}}
	}
	for name, test := range map[string]struct {
		before   []bootlease.Command
		do       bootlease.Command
		events   int
		code     fault.Code
		holder   int
		complete bool
	}{
		"taken":                                 {nil, taken(1, 1), 1, "", 1, false},
		"taken again":                           {[]bootlease.Command{taken(1, 1)}, taken(1, 1), 0, "", 1, false},
		"taken by another":                      {[]bootlease.Command{taken(1, 1), complete(1)}, taken(2, 2), 1, "", 2, false},
		"taken by another in the same term":     {[]bootlease.Command{taken(1, 1)}, taken(2, 1), 0, fault.Conflict, 1, false},
		"an older term":                         {[]bootlease.Command{taken(2, 2)}, taken(1, 1), 0, "", 2, false},
		"taken by nobody":                       {nil, bootlease.Take{}, 0, fault.InvalidInput, 0, false},
		"complete":                              {[]bootlease.Command{taken(1, 1)}, complete(1), 1, "", 1, true},
		"complete twice":                        {[]bootlease.Command{taken(1, 1), complete(1)}, complete(1), 0, "", 1, true},
		"complete too late":                     {[]bootlease.Command{taken(1, 1), taken(2, 2)}, complete(1), 0, "", 2, false},
		"given back":                            {[]bootlease.Command{taken(1, 1)}, release(1, 1), 1, "", 0, false},
		"given back twice":                      {[]bootlease.Command{taken(1, 1), release(1, 1)}, release(1, 1), 0, "", 0, false},
		"given back too late":                   {[]bootlease.Command{taken(1, 1), taken(2, 2)}, release(1, 1), 0, "", 2, false},
		"taken after it was given back":         {[]bootlease.Command{taken(1, 1), complete(1), release(1, 1)}, taken(1, 1), 1, "", 1, true},
		"taken by another after it was":         {[]bootlease.Command{taken(1, 1), complete(1), release(1, 1)}, taken(2, 2), 1, "", 2, false},
		"complete after it was given back":      {[]bootlease.Command{taken(1, 1), release(1, 1)}, complete(1), 0, "", 0, false},
		"complete before anybody ever took one": {nil, complete(1), 0, "", 0, false},
	} {
		var s bootlease.State
		for _, c := range test.before {
			events, err := bootlease.Decide(s, c)
			if err != nil || len(events) != 1 {
				t.Fatalf("%s: %d events before, %v", name, len(events), err)
			}
			s = bootlease.Decider.Fold(s, events...)
		}
		events, err := bootlease.Decide(s, test.do)
		if fault.CodeOf(err) != test.code || len(events) != test.events {
			t.Errorf("%s: %d events, %v", name, len(events), err)
			continue
		}
		s = bootlease.Decider.Fold(s, events...)
		if held := test.holder > 0; held != s.With(agent(test.holder), s.Term) || s.Complete && !s.Released != test.complete {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
