package commands

import (
	"strconv"
	"testing"

	"github.com/better-compute/metal/domain/event"
)

// Large folds do not fill the memory: the cache is bounded by what was folded, too, and keeps the newest.
func TestCacheIsBoundedByBytes(t *testing.T) {
	c := newStateCache(cachedStates)
	stream := func(i int) event.Stream { return event.StreamOf("thing", strconv.Itoa(i)) }
	const each = 1 << 20
	for i := range 4 * cachedBytes / each {
		c.put(stream(i), loaded[int]{state: i, version: 1, size: each / 2}, 0)
		c.put(stream(i), loaded[int]{state: i, version: 2, size: each}, 0)
		held := 0
		for el := c.order.Front(); el != nil; el = el.Next() {
			held += el.Value.(*cacheEntry).size
		}
		if held > cachedBytes || held != c.size || c.order.Len() != len(c.byName) {
			t.Fatalf("%d bytes, counted as %d, of %d folds and %d names", held, c.size, c.order.Len(), len(c.byName))
		}
		if l, ok := cached[int](c, stream(i)); !ok || l.state != i {
			t.Fatalf("fold %d is not kept", i)
		}
	}
	kept := c.size
	if c.forget(stream(4*cachedBytes/each - 1)); c.size != kept-each {
		t.Errorf("%d bytes after one of %d was forgotten", c.size, kept)
	}
	if c.begin(7); c.size != 0 || c.order.Len() != 0 {
		t.Errorf("%d bytes of nothing", c.size)
	}
}
