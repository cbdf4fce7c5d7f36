package state

import (
	"maps"
	"slices"
)

// Change is one change to a machine or its Node object, from the observed state to the wanted one.
type Change struct {
	Step     Step
	From, To Resource
	Owes     []string // the units that must restart because of this change
	Restart  bool     // a running unit must restart, because something it reads has changed
	// Undo is set if To is the state before us in the ledger, and Ours the state that we gave it.
	Undo bool
	Ours Resource
	// Keep and Leave are set if others changed the thing: a copy of From is kept, or it is left.
	Keep, Leave bool
}

// Plan is an ordered list of changes; an empty one is a no-op.
type Plan []Change

// Only returns the changes of the given keys, without undoing anything.
func (p Plan) Only(keys []Key) Plan {
	return slices.DeleteFunc(slices.Clone(p), func(c Change) bool {
		return c.Undo || !slices.Contains(keys, c.To.Key())
	})
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

// Unknown lists, by key, the resources that could not be observed.
func (o Observed) Unknown() []Unknown {
	var list []Unknown
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if u, ok := o[key].(Unknown); ok {
			list = append(list, u)
		}
	}
	return list
}

// After returns the observation expected after plan has been carried out.
func After(seen Observed, plan Plan) Observed {
	next := maps.Clone(seen)
	for _, c := range plan {
		if !c.Leave {
			next[c.To.Key()] = c.To
		}
	}
	return next
}

// Unknown is a failed observation, neither drift nor absence. It is never wanted.
type Unknown struct {
	Of  Key
	Why string
	Err error // the error of observing it; nil if that was not tried
}

func (r Unknown) Key() Key { return r.Of }

func (r Unknown) equal(Resource) bool { return false }

func (r Unknown) describe(Change) string { return "observe " + r.Of.Name() }

func (r Unknown) show() string { return "unknown: " + r.Why }

// Line is one change. For drift, Expected is the applied configuration's state, Found the actual.
type Line struct {
	Step     Step   `json:"step"`
	Key      Key    `json:"key"`
	Action   string `json:"action"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// Lines returns a plan in the form for people and programs.
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
