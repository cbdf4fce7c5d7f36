package state

// Adopt makes a ledger for a host whose own is lost: what is seen exactly as it is wanted counts as ours and as absent before.
// What differs, and what has no absence to go back to (kernel parameters, modules, swap, shared directories), is left out.
func Adopt(want Desired, seen Observed) Ledger {
	var l Ledger
	for _, item := range want {
		r := item.Resource
		before := absence(r)
		if before == nil || !Equal(seen[r.Key()], r) && !claims(r) {
			continue
		}
		l.Entries = append(l.Entries, Entry{Step: item.Step, Before: Record{before}, Ours: Record{r}, Owes: item.Owes})
	}
	return l
}

// absence is what a resource is where we never were; nil when that cannot be known.
func absence(r Resource) Resource {
	switch r := r.(type) {
	case File:
		return Absent{Path: r.Path}
	case Link:
		return Absent{Path: r.Path}
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
	}
	return nil
}
