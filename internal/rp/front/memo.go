package front

import "sync"

// memo keeps what can be found out or made again, so much of it at most: then it is emptied. The
// zero value is empty.
type memo[K comparable, V any] struct {
	mu   sync.RWMutex
	kept map[K]V
}

const memoSize = 10_000

func (m *memo[K, V]) get(key K) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.kept[key]
	return v, ok
}

func (m *memo[K, V]) keep(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, v)
}

func (m *memo[K, V]) put(key K, v V) {
	if _, known := m.kept[key]; m.kept == nil || !known && len(m.kept) >= memoSize {
		m.kept = map[K]V{}
	}
	m.kept[key] = v
}

// of returns the value of a key; it is made if it does not exist.
func (m *memo[K, V]) of(key K, made func() V) V {
	if v, ok := m.get(key); ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.kept[key]
	if !ok {
		v = made()
		m.put(key, v)
	}
	return v
}
