package agentapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/agents"
)

const (
	// flushPeriod is how often signs of life are written, all in one statement.
	flushPeriod = time.Second
	// contactPause is the least time between two writes of an agent of which nothing else changed.
	contactPause = 30 * time.Second
)

// presence gathers signs of life between writes.
type presence struct {
	mu       sync.Mutex
	heard    map[id.Agent]*heard
	progress map[string]agents.Progress
	noted    chan struct{} // holds a value while something may wait to be written
}

// heard is the newest contact of one agent.
type heard struct {
	contact agents.Contact
	at      time.Time
	written time.Time // zero: what changed waits to be written
	told    []string  // orders that it was told to stop
}

func newPresence() *presence {
	return &presence{heard: map[id.Agent]*heard{}, progress: map[string]agents.Progress{}, noted: make(chan struct{}, 1)}
}

// touch notes a contact.
func (p *presence) touch(c agents.Contact, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(c.Agent)
	before := h.contact
	if before.BootID != c.BootID || before.Role != c.Role || before.Closed != c.Closed || before.Boot != c.Boot ||
		!slices.Equal(before.Doing, c.Doing) {
		h.written = time.Time{}
	}
	h.contact, h.at = c, now
	nudge(p.noted)
}

// of needs the lock.
func (p *presence) of(a id.Agent) *heard {
	if p.heard[a] == nil {
		p.heard[a] = &heard{}
	}
	return p.heard[a]
}

func (p *presence) note(progress agents.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress[progress.Command] = progress
	nudge(p.noted)
}

// told tells whether an agent was told to stop working on an order.
func (p *presence) told(a id.Agent, command string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.of(a).told, command)
}

func (p *presence) tell(a id.Agent, command string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(a)
	h.told = append(h.told, command)
}

// keep forgets what the agent no longer works on.
func (p *presence) keep(a id.Agent, doing []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(a)
	h.told = slices.DeleteFunc(h.told, func(command string) bool { return !slices.Contains(doing, command) })
}

// due takes what is to be written; what is left for later is noted. Agents that were not heard of for long are forgotten.
func (p *presence) due(now time.Time, all bool) (contacts []agents.Contact, progress []agents.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, h := range p.heard {
		if h.written.IsZero() && !h.at.IsZero() || h.at.After(h.written) && (all || now.Sub(h.written) >= contactPause) {
			c := h.contact
			c.Ago = max(now.Sub(h.at), 0)
			contacts = append(contacts, c)
			h.written = h.at
		} else if now.Sub(h.at) > 2*agents.Alive {
			delete(p.heard, a)
		}
		if h.at.After(h.written) {
			nudge(p.noted)
		}
	}
	for _, n := range p.progress {
		progress = append(progress, n)
	}
	clear(p.progress)
	return contacts, progress
}

// flush writes signs of life until ctx ends.
func (g *Gateway) flush(ctx context.Context) {
	for await(ctx, g.presence.noted) && pause(ctx, flushPeriod) {
		if err := g.writePresence(ctx, false); err != nil && ctx.Err() == nil {
			g.Logger.Warn("signs of life could not be written", "error", err)
		}
	}
}

// writePresence loses a contact where it fails: the next one is soon.
func (g *Gateway) writePresence(ctx context.Context, all bool) error {
	contacts, progress := g.presence.due(g.Clock(), all)
	if len(contacts)+len(progress) == 0 {
		return nil
	}
	return g.Presence.Write(ctx, contacts, progress)
}
