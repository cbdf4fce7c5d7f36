package front

import "sync"

// memo keeps what can be found out again, so much of it at most: then it begins anew. The zero
// value is empty.
type memo[V any] struct {
	mu   sync.Mutex
	kept map[string]V
}

const memoSize = 4096

func (m *memo[V]) get(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.kept[key]
	return v, ok
}

func (m *memo[V]) keep(key string, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.kept[key]; m.kept == nil || !known && len(m.kept) >= memoSize {
		m.kept = map[string]V{}
	}
	m.kept[key] = v
}
