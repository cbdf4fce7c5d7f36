package state

import (
	"maps"
	"slices"
)

// Change is one touch of a machine or its Node object: From is what is there, To what shall be.
type Change struct {
	Step     Step
	From, To Resource
	// Owes names the units that must restart because of this change.
	Owes    []string
	Restart bool // a running unit must restart, because something it reads has changed
	// Undo tells that To is what the ledger remembers from before, and Ours what we made of it.
	Undo bool
	Ours Resource
	// Keep and Leave tell that others changed the thing: a copy of From is kept, or it is left.
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

// Observed holds the observed resources, by key.
type Observed map[Key]Resource

// Unknown lists, by key, what could not be observed.
func (o Observed) Unknown() []Unknown {
	var list []Unknown
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if u, ok := o[key].(Unknown); ok {
			list = append(list, u)
		}
	}
	return list
}

// After returns what would be seen once plan has been carried out.
func After(seen Observed, plan Plan) Observed {
	next := maps.Clone(seen)
	if next == nil {
		next = make(Observed)
	}
	for _, c := range plan {
		if !c.Leave {
			next[c.To.Key()] = c.To
		}
	}
	return next
}

// Unknown is an observation that could not be made, neither drift nor absence. It is never wanted.
type Unknown struct {
	Of  Key
	Why string
	Err error // why observing it failed; nil where that was not tried
}

func (r Unknown) Key() Key { return r.Of }

func (r Unknown) equal(Resource) bool { return false }

func (r Unknown) describe(Change) string { return "observe " + r.Of.Name() }

func (r Unknown) show() string { return "unknown: " + r.Why }

// Line is one change. For drift, Expected is what the applied configuration says and Found what is.
type Line struct {
	Step     Step   `json:"step"`
	Key      Key    `json:"key"`
	Action   string `json:"action"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// Lines returns a plan as people and programs read it.
func Lines(plan Plan) []Line {
	list := make([]Line, len(plan))
	for i, c := range plan {
		list[i] = Line{
			Step: c.Step, Key: c.To.Key(), Action: Describe(c),
			Expected: Show(c.To), Found: Show(c.From),
		}
		if c.Restart {
			list[i].Found = "restart pending"
		}
	}
	return list
}
