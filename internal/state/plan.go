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
	// Keep tells that another process has changed the thing since, so that a copy of From is kept
	// before it is changed; Leave that it is left as it is for that reason, and only forgotten.
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

// changes tells whether the plan has a change of key.
func (p Plan) changes(key Key) bool {
	return slices.Contains(p.Keys(), key)
}

// Undone returns the keys of what the plan undoes or leaves to others: the ledger forgets them once
// the plan has been carried out.
func (p Plan) Undone() []Key {
	var keys []Key
	for _, c := range p {
		if c.Undo {
			keys = append(keys, c.To.Key())
		}
	}
	return keys
}

// Keys returns the keys of all changes in order.
func (p Plan) Keys() []Key {
	keys := make([]Key, len(p))
	for i, c := range p {
		keys[i] = c.To.Key()
	}
	return keys
}
