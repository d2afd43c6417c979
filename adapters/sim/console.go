package sim

import (
	"context"
	"slices"
	"time"
)

// Entry is one line of a machine's console: what happened to it.
type Entry struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	Text string    `json:"text"`
}

// Kind sorts what happens to a machine.
type Kind string

// The kinds.
const (
	KindPower Kind = "power"
	KindPOST  Kind = "post"
	KindBoot  Kind = "boot"
	KindAgent Kind = "agent"
	KindFault Kind = "fault"
)

// maxEntries is how many lines a console keeps.
const maxEntries = 200

// say writes on the console, and wakes who waits for the machine. The machine's lock is held.
func (m *Machine) say(kind Kind, text string) {
	m.entries = append(m.entries, Entry{At: m.site.config.Clock.Now(), Kind: kind, Text: text})
	if len(m.entries) > maxEntries {
		m.entries = slices.Delete(m.entries, 0, len(m.entries)-maxEntries)
	}
	m.wake()
}

func (m *Machine) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Machine) tell(kind Kind, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say(kind, text)
}

// Console is what the machine wrote, the newest last.
func (m *Machine) Console() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}

// Await returns once the machine is as wanted, or ctx ends.
func (m *Machine) Await(ctx context.Context, wanted func(View) bool) error {
	for {
		m.mu.Lock()
		view, changed := m.view(), m.changed
		m.mu.Unlock()
		if wanted(view) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
