package store

import (
	"hash/maphash"
	"sync"
)

// points finds the entries of nodes by a hash of their keys. The tree of a snapshot compares a key
// with some seventeen others to find one of 100,000, which are all over the memory, and each poll
// asks for its node. What is not found here may still be in the tree: of two keys with one hash
// only the last one is here.
type points struct {
	hash func(key string) uint64

	mu sync.RWMutex
	of map[uint64]*entry
}

func newPoints() *points {
	seed := maphash.MakeSeed()
	return &points{
		hash: func(key string) uint64 { return maphash.String(seed, key) },
		of:   map[uint64]*entry{},
	}
}

// find is the entry of a key, nil if it is not here.
func (p *points) find(key string) *entry {
	hash := p.hash(key)
	p.mu.RLock()
	e := p.of[hash]
	p.mu.RUnlock()
	if e == nil || e.key() != key {
		return nil
	}
	return e
}

// follow takes over changes of nodes.
func (p *points) follow(changes []changed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range changes {
		if c.table != nodesTable && c.table != statusTable {
			continue
		}
		hash := p.hash(c.key)
		if c.entry != nil {
			p.of[hash] = c.entry
		} else if e := p.of[hash]; e != nil && e.key() == c.key {
			delete(p.of, hash)
		}
	}
}
