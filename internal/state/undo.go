package state

// claims reports whether a resource is in the ledger unchanged: its undo removes what came since.
func claims(r Resource) bool {
	dir, isDir := r.(Dir)
	_, isResidue := r.(Residue)
	return isResidue || isDir && dir.Purge
}

// absence returns a resource's state on a machine that was never a node; nil if that is unknown.
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

type treatment int

const (
	leaveAsIs   treatment = iota // the change belongs to its author
	undoAnyway                   // nothing of value is lost
	undoAndKeep                  // undo, and keep a copy of what is there
)

// undoForeign returns the treatment of what is neither as it was before nor as we made it.
func undoForeign(seen, before Resource) treatment {
	switch r := seen.(type) {
	case Residue,
		Absent,  // our thing was removed, and the previous one comes back
		Swap,    // areas are only turned on, and those of others stay
		Table,   // one of that name is ours, whatever rules it has now
		Package: // ours, removed or broken by others, is still ours
		return undoAnyway
	case File:
		return undoAndKeep
	case Link: // one that leads to a directory is the owner's way to put data on another disk
		if r.Dir == nil {
			return undoAndKeep
		}
	case Dir: // it has replaced a file or link of ours
		if r.Empty && !r.Mounted {
			return undoAnyway
		}
	case Unit: // one that did not exist before is ours whatever has been made of it
		if was, ok := before.(Unit); ok && was.Enabled == NoUnit {
			return undoAnyway
		}
	}
	return leaveAsIs
}

// Adopt makes a ledger for a machine that has lost its own: what is seen as it is wanted counts as
// ours and as absent before. What has no absence to return to is left out, as are spared items.
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

// ownersPlace is a mount point or link to a directory without what is ours in it; else nil.
func ownersPlace(seen Resource) Resource {
	switch seen := seen.(type) {
	case Dir:
		if seen.Mounted {
			seen.Empty = true
			return seen
		}
	case Link:
		if seen.Dir != nil {
			dir := *seen.Dir
			dir.Empty = true
			seen.Dir = &dir
			return seen
		}
	}
	return nil
}
