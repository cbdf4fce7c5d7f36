package state

import (
	"maps"
	"slices"
)

// Observed is what was seen, by key.
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

// Unknown is an observation that could not be made, which is neither drift nor absence: an API
// server that does not answer is not a missing Node. It is never wanted or remembered.
type Unknown struct {
	Of  Key
	Why string
	// Err is why observing it failed; nil where that was not tried.
	Err error
}

func (r Unknown) Key() Key { return r.Of }

func (r Unknown) equal(Resource) bool { return false }

func (r Unknown) describe(Change) string { return "observe " + r.Of.Name() }

func (r Unknown) show() string { return "unknown: " + r.Why }
