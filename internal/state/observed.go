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
