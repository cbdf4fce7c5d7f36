package state

// Adopt makes a ledger for a machine whose own is lost: what is seen exactly as it is wanted counts
// as ours and as absent before. What differs, and what has no absence to return to (kernel
// parameters, modules, swap, shared directories), is left out, as are spared items.
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

// ownersPlace is a mount point or a link to a directory, as its owner made it: with nothing of ours
// in it. It is nil for anything else, which goes with its contents.
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
