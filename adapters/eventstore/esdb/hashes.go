package esdb

import (
	"sync"

	"github.com/better-compute/metal/domain/event"
)

// maxHashes bounds what a Store remembers of chains: about 20 MB at most.
const maxHashes = 50_000

// link is the hash of one version of a stream.
type link struct {
	version event.Version
	hash    event.Hash
}

// hashes remembers the newest link of streams, so that most appends need not read their predecessor. Only hashes of
// stored bytes may go in: a retry that the server took for done may have sealed other bytes than are stored.
type hashes struct {
	mu    sync.Mutex
	links map[event.Stream]link
}

func newHashes() *hashes { return &hashes{links: map[event.Stream]link{}} }

// get is the hash of version v of s, if it is remembered. Version zero has none and is always known.
func (h *hashes) get(s event.Stream, v event.Version) (event.Hash, bool) {
	if v == 0 {
		return event.Hash{}, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l, known := h.links[s]
	return l.hash, known && l.version == v
}

// put remembers the hash of version v of s, unless a newer version is known.
func (h *hashes) put(s event.Stream, v event.Version, hash event.Hash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, known := h.links[s]
	if known && l.version > v {
		return
	}
	if !known && len(h.links) >= maxHashes {
		for victim := range h.links { // whichever comes first: it can be read again
			delete(h.links, victim)
			break
		}
	}
	h.links[s] = link{v, hash}
}
