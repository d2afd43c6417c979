package commands

import (
	"container/list"
	"sync"

	"github.com/better-compute/metal/domain/event"
)

// cachedStates bounds the folds kept in memory; a fold is a few kilobytes.
const cachedStates = 8192

// stateCache keeps the newest folds by stream, the least recently used leaving first. A stale one is harmless: load reads
// what is newer, and an append expects the version that was folded.
type stateCache struct {
	mu     sync.Mutex
	most   int
	order  *list.List // of *cacheEntry, most recently used first
	byName map[event.Stream]*list.Element
}

type cacheEntry struct {
	stream  event.Stream
	version event.Version
	fold    any // a loaded[S]
}

func newStateCache(most int) *stateCache {
	return &stateCache{most: most, order: list.New(), byName: map[event.Stream]*list.Element{}}
}

func cached[S any](c *stateCache, stream event.Stream) (loaded[S], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byName[stream]
	if !ok {
		return loaded[S]{}, false
	}
	c.order.MoveToFront(el)
	l, ok := el.Value.(*cacheEntry).fold.(loaded[S])
	return l, ok
}

func (c *stateCache) put(stream event.Stream, fold interface{ folded() event.Version }) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byName[stream]; ok {
		if entry := el.Value.(*cacheEntry); entry.version < fold.folded() {
			entry.version, entry.fold = fold.folded(), fold
		}
		c.order.MoveToFront(el)
		return
	}
	c.byName[stream] = c.order.PushFront(&cacheEntry{stream: stream, version: fold.folded(), fold: fold})
	for c.order.Len() > c.most {
		oldest := c.order.Back()
		c.order.Remove(oldest)
		delete(c.byName, oldest.Value.(*cacheEntry).stream)
	}
}

// forget drops a fold that an append found not to be the newest: a log restored from a backup may even be behind it.
func (c *stateCache) forget(stream event.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byName[stream]; ok {
		c.order.Remove(el)
		delete(c.byName, stream)
	}
}

func (l loaded[S]) folded() event.Version { return l.version }
