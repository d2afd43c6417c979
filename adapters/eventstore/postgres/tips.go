package postgres

import (
	"sync"

	"github.com/better-compute/metal/domain/event"
)

// tips remembers, for the streams in use, the newest version known and its hash, to which the next event links. An
// event never changes, so a tip is never wrong, only old: then the append finds a conflict.
//
// Two generations make it bounded: when the young one is half of the bound, it becomes the old one, and what was old
// and not used meanwhile is forgotten.
type tips struct {
	mu         sync.Mutex
	generation int
	young, old map[event.Stream]tip
}

type tip struct {
	version event.Version
	hash    event.Hash
}

func newTips(bound int) *tips {
	return &tips{generation: max(1, bound/2), young: map[event.Stream]tip{}, old: map[event.Stream]tip{}}
}

// get is the hash of version v of a stream, where it is known. A stream's first event links to nothing.
func (t *tips) get(s event.Stream, v event.Version) (hash event.Hash, known bool) {
	if v == 0 {
		return event.Hash{}, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	held, found := t.young[s]
	if !found {
		if held, found = t.old[s]; found {
			t.keep(s, held)
		}
	}
	return held.hash, found && held.version == v
}

// put remembers a version unless a newer one is known.
func (t *tips) put(s event.Stream, v event.Version, hash event.Hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.young[s].version < v && t.old[s].version < v {
		t.keep(s, tip{v, hash})
	}
}

func (t *tips) keep(s event.Stream, held tip) {
	if len(t.young) >= t.generation {
		t.young, t.old = make(map[event.Stream]tip, t.generation), t.young
	}
	t.young[s] = held
}

// forget drops everything: after a lost connection the database may be an older one, restored from a backup.
func (t *tips) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.young, t.old = map[event.Stream]tip{}, map[event.Stream]tip{}
}
