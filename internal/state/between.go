package state

import "slices"

// Between is what has to change for a machine that is one node to be another. What the machine was
// before either is not known, so what only the first wants is given back as it is said of a machine
// that was never a node.
func Between(from, to Desired) Plan {
	seen, ledger := make(Observed), Ledger{}
	for _, item := range from {
		if item.Spared {
			continue
		}
		seen[item.Resource.Key()] = item.Resource
		if before := absence(item.Resource); before != nil {
			entry := newEntry(item.Step, before, item.Resource, item.Owes)
			ledger.Entries = append(ledger.Entries, entry)
		}
	}
	wanted := slices.DeleteFunc(slices.Clone(to), func(item Item) bool {
		key := item.Resource.Key()
		is := seen[key]
		if is == nil {
			if seen[key] = absence(item.Resource); seen[key] == nil { // that is not known
				seen[key] = Absent{Path: key.Name()}
			}
			return false
		}
		_, unit := is.(Unit) // it may have to restart
		return !unit && Equal(is, item.Resource)
	})
	for _, item := range to { // what both want is not undone
		if i := ledger.index(item.Resource.Key()); i >= 0 {
			ledger.Entries = slices.Delete(ledger.Entries, i, i+1)
		}
	}
	return Diff(wanted, to, seen, ledger)
}
