package commands

import (
	"container/list"
	"sync"

	"github.com/better-compute/metal/domain/event"
)

// cachedStates bounds the folds kept in memory, and cachedBytes the data of the events that were folded: a few kilobytes each as a
// rule, but a profile may have a quarter of a megabyte.
const (
	cachedStates = 8192
	cachedBytes  = 64 << 20
)

// stateCache keeps the newest folds by stream, the least recently used leaving first. A stale one is harmless where an append
// expects the version that was folded.
//
// The log is followed beside it: a fold is level where it holds all that its stream has up to the followed position. What makes
// that certain: each entry notes the versions that the follower comes by from a position on, since, and of its fold is known up
// to which position of the log it holds everything.
type stateCache struct {
	mu       sync.Mutex
	most     int
	size     int        // of all entries
	order    *list.List // of *cacheEntry, most recently used first
	byName   map[event.Stream]*list.Element
	followed event.Position
}

type cacheEntry struct {
	stream  event.Stream
	since   event.Position
	newest  event.Version  // that the follower came by since
	fold    any            // a loaded[S]; nil: it is being read
	version event.Version  // of the fold
	whole   event.Position // up to here nothing is missing in the fold
	size    int            // of the data that was folded
}

// folded is a loaded[S] of any S.
type folded interface {
	folded() (v event.Version, p event.Position, size int)
}

func newStateCache(most int) *stateCache {
	return &stateCache{most: most, order: list.New(), byName: map[event.Stream]*list.Element{}}
}

// entry needs the lock; nil: there is none.
func (c *stateCache) entry(stream event.Stream) *cacheEntry {
	el, ok := c.byName[stream]
	if !ok {
		return nil
	}
	c.order.MoveToFront(el)
	return el.Value.(*cacheEntry)
}

// add needs the lock.
func (c *stateCache) add(e *cacheEntry) {
	c.byName[e.stream] = c.order.PushFront(e)
	c.bound()
}

// bound needs the lock.
func (c *stateCache) bound() {
	for c.order.Len() > c.most || c.size > cachedBytes && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

// remove needs the lock.
func (c *stateCache) remove(el *list.Element) {
	e := c.order.Remove(el).(*cacheEntry)
	delete(c.byName, e.stream)
	c.size -= e.size
}

func cached[S any](c *stateCache, stream event.Stream) (loaded[S], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(stream)
	if e == nil || e.fold == nil {
		return loaded[S]{}, false
	}
	l, ok := e.fold.(loaded[S])
	return l, ok
}

// level is the fold where it holds all that its stream has up to a position.
func level[S any](c *stateCache, stream event.Stream, asOf event.Position) (loaded[S], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed < asOf || c.followed == 0 {
		return loaded[S]{}, false
	}
	e := c.entry(stream)
	if e == nil || e.fold == nil || e.whole < e.since || e.version < e.newest {
		return loaded[S]{}, false
	}
	l, ok := e.fold.(loaded[S])
	return l, ok
}

// reading begins to note what the follower comes by, before a stream is read, and gives the position up to which the read sees
// everything.
func (c *stateCache) reading(stream event.Stream) event.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entry(stream) == nil {
		c.add(&cacheEntry{stream: stream, since: c.followed})
	}
	return c.followed
}

// put keeps a fold in which nothing is missing up to a position.
func (c *stateCache) put(stream event.Stream, fold folded, whole event.Position) {
	version, last, size := fold.folded()
	whole = max(whole, last)
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(stream)
	if e == nil {
		e = &cacheEntry{stream: stream, since: c.followed}
		c.add(e)
	}
	switch {
	case e.fold == nil || e.version < version:
		e.fold, e.version, e.whole = fold, version, max(e.whole, whole)
		c.size += size - e.size
		e.size = size
		c.bound()
	case e.version == version:
		e.whole = max(e.whole, whole)
	}
}

// forget drops a fold that an append found not to be the newest: a log restored from a backup may even be behind it.
func (c *stateCache) forget(stream event.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byName[stream]; ok {
		c.remove(el)
	}
}

// follow takes in the events from the followed position up to head.
func (c *stateCache) follow(from event.Position, events []event.Recorded, head event.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed != from { // it was begun anew meanwhile
		return
	}
	for _, r := range events {
		if el, ok := c.byName[r.Stream]; ok {
			e := el.Value.(*cacheEntry)
			e.newest = max(e.newest, r.Version)
		}
	}
	c.followed = head
}

// begin follows from a position on. Nothing that was kept is certain to be level.
func (c *stateCache) begin(at event.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	clear(c.byName)
	c.followed, c.size = at, 0
}

func (c *stateCache) position() event.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.followed
}

func (l loaded[S]) folded() (v event.Version, p event.Position, size int) {
	return l.version, l.position, l.size
}
