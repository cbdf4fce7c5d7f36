package state

// claims reports whether the ledger records even an unchanged resource, to undo later additions.
func claims(r Resource) bool {
	dir, isDir := r.(Dir)
	_, isResidue := r.(Residue)
	return isResidue || isDir && dir.Purge
}

// absence returns a resource's state on a machine that was never a node; nil if unknown.
func absence(r Resource) Resource {
	switch r := r.(type) {
	case File, Link:
		return Absent{Path: r.Key().Name()}
	case Dir:
		if r.Purge {
			return Absent{Path: r.Path}
		}
	case Unit:
		if r.Enabled == Enabled {
			return Unit{Name: r.Name, Enabled: NoUnit}
		}
	case Residue:
		return Residue{Kind: r.Kind, Match: r.Match}
	case Opening:
		return Opening{Firewall: r.Firewall, Rule: r.Rule}
	case Table:
		return Table{Name: r.Name}
	case Registration:
		return Registration{Node: r.Node}
	case Label:
		return Label{Name: r.Name}
	case Cordon:
		return Cordon{}
	}
	return nil
}

// undoesForeign reports whether a thing that others have changed is undone, and not left as it is.
func undoesForeign(seen, before Resource) bool {
	switch r := seen.(type) {
	case Residue,
		Absent,  // our thing was removed, and the previous one is restored
		Swap,    // areas are only turned on, and the owner's stay
		Table,   // a table of that name is ours, whatever its rules
		Package, // ours, even if others removed or broke it
		File:    // a copy is kept
		return true
	case Link: // the owner's link to a directory puts its data on another disk
		return r.Dir == nil
	case Dir: // it replaced a file or link of ours
		return r.Empty && !r.Mounted
	case Unit: // a unit that did not exist before is ours, however it was changed
		was, ok := before.(Unit)
		return ok && was.Enabled == NoUnit
	}
	return false
}

// Adopt creates a ledger for a machine that has lost its own: things that are as wanted count as
// ours and as absent before. It omits things whose absence is unknown, and spared items.
func Adopt(want Desired, seen Observed) Ledger {
	var l Ledger
	for _, item := range want {
		r := item.Resource
		before, is := absence(r), seen[r.Key()]
		if item.Spared || before == nil || !isKnown(is) || !Satisfies(is, r) && !claims(r) {
			continue
		}
		if kept := ownersPlace(is); claims(r) && kept != nil {
			before = kept
		}
		l.Entries = append(l.Entries, newEntry(item.Step, before, r, item.Owes))
	}
	return l
}

// ownersPlace returns a mount point or link to a directory, as empty of our files; else nil.
func ownersPlace(seen Resource) Resource {
	switch seen := seen.(type) {
	case Dir:
		if seen.Mounted {
			seen.Empty = true
			return seen
		}
	case Link:
		if seen.Dir != nil {
			seen.Dir = new(*seen.Dir)
			seen.Dir.Empty = true
			return seen
		}
	}
	return nil
}
