package state

import "slices"

// Change is one touch of a machine or its Node object: From is what is there, To what shall be.
type Change struct {
	Step     Step
	From, To Resource
	// Owes names the units that must restart because of this change.
	Owes []string
	// Restart tells that a running unit must restart, because something it reads has changed.
	Restart bool
	// Undo tells that To is what the ledger remembers from before, and Ours what we made of it.
	Undo bool
	Ours Resource
	// Keep and Leave tell that another process has changed the thing since: a copy of From is kept
	// before it is changed, or it is left as it is, and only forgotten.
	Keep, Leave bool
}

// Plan is an ordered list of changes; an empty one is a no-op.
type Plan []Change

// Only returns the changes of the given keys, without undoing anything.
func (p Plan) Only(keys []Key) Plan {
	var only Plan
	for _, c := range p {
		if !c.Undo && slices.Contains(keys, c.To.Key()) {
			only = append(only, c)
		}
	}
	return only
}

// changes reports whether the plan has a change of key.
func (p Plan) changes(key Key) bool { return slices.Contains(p.Keys(), key) }

// Keys returns the keys of all changes in order.
func (p Plan) Keys() []Key { return keys(p, func(c Change) Key { return c.To.Key() }) }

func keys[T any](list []T, keyOf func(T) Key) []Key {
	keys := make([]Key, len(list))
	for i, item := range list {
		keys[i] = keyOf(item)
	}
	return keys
}
