package state

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// DaemonReload in Owes and Owed stands for systemd's reload of its unit files.
const DaemonReload = "daemon-reload"

// Entry records a thing that we changed: its state before, the state we gave it, and its units.
type Entry struct {
	Step   Step   `json:"step"`
	Before Record `json:"before"`
	Ours   Record `json:"ours"`
	// Prior is our record before the current change: a killed run leaves either of the two.
	Prior Record   `json:"prior,omitzero"`
	Owes  []string `json:"owes,omitempty"`
}

func newEntry(step Step, before, ours Resource, owes []string) Entry {
	return Entry{
		Step: step, Before: Record{Resource: before}, Ours: Record{Resource: ours}, Owes: owes,
	}
}

// undone reports whether a thing is in its state before us, with nothing left to remove.
func (e Entry) undone(seen Resource) bool {
	if before, ok := e.Before.Resource.(Residue); ok {
		is, _ := seen.(Residue)
		return sets.New(before.Found...).HasAll(is.Found...)
	}
	if !Equal(seen, e.Before.Resource) {
		return false
	}
	ours, ok := e.Ours.Resource.(Dir)
	return !ok || !ours.needsUndo(e.Before.Resource, seen)
}

// isOurs reports whether a thing is in its state before us, or in one that we gave it or began to.
func (e Entry) isOurs(seen Resource) bool {
	before, ours, prior := e.Before.Resource, e.Ours.Resource, e.Prior.Resource
	unit, isUnit := seen.(Unit)
	return Equal(seen, before) || Equal(seen, ours) || prior != nil && Equal(seen, prior) ||
		isUnit && unit.between(before, ours) || claims(ours) && kind(seen) == kind(ours)
}

// edited reports whether the content is neither the one before us nor one that we wrote. An edited
// credential does not count: no copy of it may remain.
func (e Entry) edited(seen Resource) bool {
	file, ok := seen.(File)
	if !ok {
		_, link := seen.(Link)
		return link && !e.isOurs(seen)
	}
	if ours, ok := e.Ours.Resource.(File); ok && e.Step == Credentials && ours.Mode == 0o600 {
		return false
	}
	known := []Resource{e.Before.Resource, e.Ours.Resource, e.Prior.Resource}
	return !slices.ContainsFunc(known, func(r Resource) bool {
		was, ok := r.(File)
		return ok && was.SHA256 == file.SHA256
	})
}

// Ledger holds everything needed for undo: entries in the order first touched, and owed restarts of
// units whose files have changed. It is on disk before the first touch (package apply).
type Ledger struct {
	Entries []Entry  `json:"entries"`
	Owed    []string `json:"owed,omitempty"`
}

// Entry returns the entry of key.
func (l Ledger) Entry(key Key) (Entry, bool) {
	if i := l.index(key); i >= 0 {
		return l.Entries[i], true
	}
	return Entry{}, false
}

func (l Ledger) index(key Key) int {
	return slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Before.Key() == key })
}

// Keys returns the keys of all entries in the order first touched.
func (l Ledger) Keys() []Key { return keys(l.Entries, func(e Entry) Key { return e.Before.Key() }) }

// As returns the entries for which holds is true as wanted items: a plan undoes none of them.
func (l Ledger) As(holds func(Entry) bool) Desired {
	var all Desired
	for _, e := range l.Entries {
		if holds(e) {
			all = append(all, Item{Step: e.Step, Resource: e.Ours.Resource})
		}
	}
	return all
}

// Owes reports whether a restart of unit (or DaemonReload) is owed.
func (l Ledger) Owes(unit string) bool { return slices.Contains(l.Owed, unit) }

// Owe returns the ledger with a restart of each unit owed.
func (l Ledger) Owe(units ...string) Ledger {
	l.Owed = slices.Clone(l.Owed)
	for _, unit := range units {
		if !l.Owes(unit) {
			l.Owed = append(l.Owed, unit)
		}
	}
	return l
}

// Record returns the ledger with the changes of plan, before it is carried out. The state before us
// is recorded once; our state is always the latest.
func (l Ledger) Record(plan Plan) Ledger {
	next := Ledger{Entries: slices.Clone(l.Entries), Owed: l.Owed}
	for _, c := range plan {
		next = next.Owe(c.Owes...)
		if c.Undo {
			continue
		}
		i := next.index(c.To.Key())
		if i < 0 {
			next.Entries = append(next.Entries, newEntry(c.Step, c.From, c.To, c.Owes))
			continue
		}
		e, prior := &next.Entries[i], Record{}
		if e.isOurs(c.From) && !Equal(c.From, c.To) {
			prior.Resource = c.From
		}
		e.Prior, e.Ours, e.Owes = prior, Record{Resource: c.To}, c.Owes
	}
	return next
}

// Touched returns the ledger after a part of a plan; the other entries are those of was.
func (l Ledger) Touched(touched Plan, was Ledger) Ledger {
	next := Ledger{}
	for _, e := range l.Entries {
		former, remembered := was.Entry(e.Before.Key())
		switch {
		case touched.changes(e.Before.Key()):
			next.Entries = append(next.Entries, e)
		case remembered:
			next.Entries = append(next.Entries, former)
		}
	}
	for _, unit := range l.Owed {
		owes := func(c Change) bool { return slices.Contains(c.Owes, unit) }
		if was.Owes(unit) || slices.ContainsFunc(touched, owes) {
			next.Owed = append(next.Owed, unit)
		}
	}
	return next
}

// Done returns the ledger after plan was carried out.
func (l Ledger) Done(plan Plan) Ledger {
	undone := slices.DeleteFunc(slices.Clone(plan), func(c Change) bool { return !c.Undo })
	next := l.Forget(undone.Keys()...)
	for i, e := range next.Entries {
		if plan.changes(e.Before.Key()) {
			next.Entries[i].Prior = Record{}
		}
	}
	return next
}

// Paid returns the ledger without the owed restart of unit.
func (l Ledger) Paid(unit string) Ledger {
	paid := func(u string) bool { return u == unit }
	return Ledger{Entries: l.Entries, Owed: slices.DeleteFunc(slices.Clone(l.Owed), paid)}
}

// Forget returns the ledger without the entries of keys.
func (l Ledger) Forget(keys ...Key) Ledger {
	gone := func(e Entry) bool { return slices.Contains(keys, e.Before.Key()) }
	return Ledger{Entries: slices.DeleteFunc(slices.Clone(l.Entries), gone), Owed: l.Owed}
}
