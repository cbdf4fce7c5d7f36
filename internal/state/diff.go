package state

import "slices"

// Change is one touch of the host: From is what is there, To is what shall be.
type Change struct {
	Step     Step
	From, To Resource
	// Owes names the units that must restart because of this change.
	Owes []string
	// Restart tells that a running unit must restart, because something it reads has changed.
	Restart bool
	// Undo tells that To is what was there before us, and Ours what we had made of it.
	Undo bool
	Ours Resource
}

// Plan is the ordered list of changes that makes a host what it shall be; an empty plan means that nothing is to do.
type Plan []Change

// Diff compares what is wanted with what was seen. What the ledger remembers and nobody wants any more goes back to what it was
// before us, latest first; then what is wanted and differs is changed, in the order wanted. Observed must hold every key of
// want and of ledger.
func Diff(want Desired, seen Observed, ledger Ledger) Plan {
	wanted := make(map[Key]bool, len(want))
	running := make(map[string]bool)
	for _, item := range want {
		wanted[item.Resource.Key()] = true
		if u, ok := item.Resource.(Unit); ok && u.Active {
			running[u.Name] = true
		}
	}
	d := differ{seen: seen, ledger: ledger, running: running, owed: slices.Clone(ledger.Owed)}
	for _, e := range slices.Backward(ledger.Entries) {
		if !wanted[e.Before.Key()] {
			d.undo(e)
		}
	}
	for _, item := range want {
		d.bring(item)
	}
	return d.plan
}

type differ struct {
	seen    Observed
	ledger  Ledger
	running map[string]bool
	owed    []string
	plan    Plan
}

func (d *differ) undo(e Entry) {
	from, to := d.seen[e.Before.Key()], e.Before.Resource
	if r, ok := to.(Residue); ok {
		if !leftSince(r, from.(Residue)) {
			return
		}
	} else if Equal(from, to) && !d.fuller(from, to, e.Ours.Resource) {
		return
	}
	d.add(Change{Step: e.Step, From: from, To: to, Owes: e.Owes, Undo: true, Ours: e.Ours.Resource})
}

// fuller tells whether a directory that was empty before us, and whose contents are ours, has something in it.
func (d *differ) fuller(from, to, ours Resource) bool {
	was, ok1 := to.(Dir)
	is, ok2 := from.(Dir)
	claim, ok3 := ours.(Dir)
	return ok1 && ok2 && ok3 && claim.Purge && was.Empty && !is.Empty
}

// leftSince tells whether now holds something that before does not.
func leftSince(before, now Residue) bool {
	return slices.ContainsFunc(now.Found, func(s string) bool { return !slices.Contains(before.Found, s) })
}

func (d *differ) bring(item Item) {
	from, to := d.seen[item.Resource.Key()], item.Resource
	_, known := d.ledger.Entry(to.Key())
	change := Change{Step: item.Step, From: from, To: to, Owes: item.Owes}
	switch to := to.(type) {
	case Residue:
		change.To = from
		if known {
			return
		}
	case Unit:
		change.Restart = to.Active && from.(Unit).Active && slices.Contains(d.owed, to.Name)
		if Equal(from, to) && !change.Restart {
			return
		}
	default:
		if Equal(from, to) && (known || !claims(to)) {
			return
		}
	}
	d.add(change)
}

// add appends a change; of the restarts that it owes only those count whose unit shall run.
func (d *differ) add(c Change) {
	c.Owes = slices.DeleteFunc(slices.Clone(c.Owes), func(unit string) bool {
		return unit != DaemonReload && !d.running[unit]
	})
	d.owed = append(d.owed, c.Owes...)
	d.plan = append(d.plan, c)
}

// After returns what would be seen once plan has been carried out on a host that looked like seen.
func After(seen Observed, plan Plan) Observed {
	next := make(Observed, len(seen))
	for k, v := range seen {
		next[k] = v
	}
	for _, c := range plan {
		next[c.To.Key()] = c.To
	}
	return next
}

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
