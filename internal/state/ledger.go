package state

import "slices"

// DaemonReload in Owes and Owed stands for systemd's own reload of its unit files.
const DaemonReload = "daemon-reload"

// Entry remembers one thing that we changed: what it was before us, what we made of it, and which units depend on it.
type Entry struct {
	Step   Step     `json:"step"`
	Before Record   `json:"before"`
	Ours   Record   `json:"ours"`
	Owes   []string `json:"owes,omitempty"`
}

// Ledger is what must be remembered to undo everything: entries in the order first touched, and restarts that are owed because
// a file changed whose unit has not restarted since. It is on disk before the first touch (package apply).
type Ledger struct {
	Entries []Entry  `json:"entries"`
	Owed    []string `json:"owed,omitempty"`
}

// Entry returns the entry of key.
func (l Ledger) Entry(key Key) (Entry, bool) {
	i := l.index(key)
	if i < 0 {
		return Entry{}, false
	}
	return l.Entries[i], true
}

// Keys returns the keys of all entries in the order first touched.
func (l Ledger) Keys() []Key {
	keys := make([]Key, len(l.Entries))
	for i, e := range l.Entries {
		keys[i] = e.Before.Key()
	}
	return keys
}

// Owes tells whether a restart of unit (or DaemonReload) is owed.
func (l Ledger) Owes(unit string) bool { return slices.Contains(l.Owed, unit) }

// Record returns the ledger with everything remembered that carrying out plan will make worth remembering. What a thing was
// before us is recorded once, at its first touch; what we make of it is always the latest.
func (l Ledger) Record(plan Plan) Ledger {
	next := Ledger{Entries: slices.Clone(l.Entries), Owed: slices.Clone(l.Owed)}
	for _, c := range plan {
		for _, unit := range c.Owes {
			if !slices.Contains(next.Owed, unit) {
				next.Owed = append(next.Owed, unit)
			}
		}
		if c.Undo {
			continue
		}
		if i := next.index(c.To.Key()); i >= 0 {
			next.Entries[i].Ours = Record{c.To}
			next.Entries[i].Owes = c.Owes
			continue
		}
		next.Entries = append(next.Entries, Entry{Step: c.Step, Before: Record{c.From}, Ours: Record{c.To}, Owes: c.Owes})
	}
	return next
}

// Paid returns the ledger without the debt of unit.
func (l Ledger) Paid(unit string) Ledger {
	return Ledger{Entries: l.Entries, Owed: slices.DeleteFunc(slices.Clone(l.Owed), func(u string) bool { return u == unit })}
}

// Forget returns the ledger without the entries of keys: they are as they were before us.
func (l Ledger) Forget(keys ...Key) Ledger {
	gone := func(e Entry) bool { return slices.Contains(keys, e.Before.Key()) }
	return Ledger{Entries: slices.DeleteFunc(slices.Clone(l.Entries), gone), Owed: l.Owed}
}

func (l Ledger) index(key Key) int {
	return slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Before.Key() == key })
}

// Settled returns the ledger as it is once plan has been carried out: what was undone is forgotten and nothing is owed.
func (l Ledger) Settled(plan Plan) Ledger {
	var undone []Key
	for _, c := range plan {
		if c.Undo {
			undone = append(undone, c.To.Key())
		}
	}
	next := l.Forget(undone...)
	next.Owed = nil
	return next
}
