// Package recent keeps what was used last, in as little memory as its values take.
package recent

import "sync"

// Cache keeps values by key: those of the keys that were used last, so many at least, and twice as
// many at most. There are two maps, and no list beside them: what is used goes into the newer one,
// and when that is full the older one is dropped. It may be used by several goroutines at once.
type Cache[K comparable, V any] struct {
	least int

	mu         sync.Mutex
	newer, old map[K]V
}

// New makes an empty cache of so many values at least.
func New[K comparable, V any](least int) *Cache[K, V] {
	return &Cache[K, V]{least: least, newer: map[K]V{}}
}

// Get returns the value of a key, which was used with that.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(key)
}

// Put gives a key a value.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.old, key)
	c.put(key, value)
}

// Change makes the value of a key, the zero value if there is none, into another.
func (c *Cache[K, V]) Change(key K, change func(V) V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, _ := c.use(key)
	c.put(key, change(value))
}

// Len is how many values there are.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.newer) + len(c.old)
}

func (c *Cache[K, V]) use(key K) (V, bool) {
	value, there := c.newer[key]
	if there {
		return value, true
	}
	if value, there = c.old[key]; there {
		delete(c.old, key)
		c.put(key, value)
	}
	return value, there
}

func (c *Cache[K, V]) put(key K, value V) {
	if _, there := c.newer[key]; !there && len(c.newer) >= c.least {
		c.newer, c.old = make(map[K]V, c.least), c.newer // it will be full, too: it need not grow
	}
	c.newer[key] = value
}
