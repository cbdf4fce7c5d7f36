package state

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Diff compares the wanted resources with the observed ones. It undoes ledger entries that are no
// longer wanted, latest first, and then changes wanted resources that differ, in order. It does not
// change unknown or spared ones. Seen must hold every key of now and of ledger.
func Diff(now, later Desired, seen Observed, ledger Ledger) Plan {
	d := differ{
		seen: seen, remembered: make(map[Key]Entry, len(ledger.Entries)),
		running: make(map[string]bool), owed: slices.Clone(ledger.Owed),
	}
	for _, item := range slices.Concat(now, later) {
		if u, ok := item.Resource.(Unit); ok && u.Active && !item.Spared {
			d.running[u.Name] = true
		}
	}
	wanted := sets.New(slices.Concat(now.Keys(), later.Keys())...)
	for _, e := range slices.Backward(ledger.Entries) {
		key := e.Before.Key()
		d.remembered[key] = e
		if !wanted.Has(key) {
			d.undo(e, purged(wanted, ledger, key))
		}
	}
	for _, item := range now {
		if !item.Spared {
			d.want(item)
		}
	}
	return d.plan
}

// Stale lists the ledger entries that a killed run has undone but not removed.
func Stale(now, later Desired, seen Observed, ledger Ledger) []Key {
	var stale []Key
	wanted := sets.New(slices.Concat(now.Keys(), later.Keys())...)
	for _, e := range ledger.Entries {
		if key := e.Before.Key(); !wanted.Has(key) && isKnown(seen[key]) && e.undone(seen[key]) {
			stale = append(stale, key)
		}
	}
	return stale
}

// purged reports whether a path is in a directory whose contents are undone with it.
func purged(wanted sets.Set[Key], ledger Ledger, key Key) bool {
	return slices.ContainsFunc(ledger.Entries, func(e Entry) bool {
		dir, ok := e.Ours.Resource.(Dir)
		before := LeadsTo(e.Before.Resource)
		return ok && dir.Purge && !wanted.Has(e.Before.Key()) && (before == nil || before.Empty) &&
			strings.HasPrefix(string(key), string(dir.Key())+"/")
	})
}

type differ struct {
	seen       Observed
	remembered map[Key]Entry
	running    map[string]bool
	owed       []string
	plan       Plan
}

// undo adds the change that undoes an entry. If others have changed the thing, its kind determines
// the treatment. In a directory that is removed with its contents it is undone like the rest.
func (d *differ) undo(e Entry, purged bool) {
	from := d.seen[e.Before.Key()]
	if !isKnown(from) || e.undone(from) {
		return
	}
	before, ours := e.Before.Resource, e.Ours.Resource
	c := Change{Step: e.Step, From: from, To: before, Owes: e.Owes, Undo: true, Ours: ours}
	is, _ := from.(Unit)
	if was, ok := before.(Unit); ok && is.Enabled == Enabled && was.Enabled != Enabled {
		c.Owes = append(slices.Clone(c.Owes), DaemonReload) // the change disables it
	}
	if !purged && !e.isOurs(from) {
		if undoesForeign(from, before) {
			c.Keep = e.edited(from)
		} else {
			c.Leave, c.Owes = true, nil
		}
	}
	d.add(c)
}

func (d *differ) want(item Item) {
	from, to := d.seen[item.Resource.Key()], item.Resource
	if !isKnown(from) {
		return
	}
	entry, remembered := d.remembered[to.Key()]
	change := Change{Step: item.Step, From: from, To: to, Owes: item.Owes}
	satisfied := Satisfies(from, to) && (remembered || !claims(to))
	switch to := to.(type) {
	case Residue:
		satisfied, change.To = remembered, from
	case Dir:
		if link, ok := from.(Link); ok && link.Dir == nil && remembered {
			return // the owner's disk is not mounted
		}
	case File, Link:
		change.Keep = remembered && entry.edited(from)
	case Unit:
		is, _ := from.(Unit)
		change.Restart = to.Active && is.Active && slices.Contains(d.owed, to.Name)
		satisfied = satisfied && !change.Restart
	}
	if !satisfied {
		d.add(change)
	}
}

func isKnown(r Resource) bool {
	_, unknown := r.(Unknown)
	return r != nil && !unknown
}

// add appends a change, owing only restarts of units that are to run.
func (d *differ) add(c Change) {
	c.Owes = slices.DeleteFunc(slices.Clone(c.Owes), func(unit string) bool {
		return unit != DaemonReload && !d.running[unit]
	})
	d.owed = append(d.owed, c.Owes...)
	d.plan = append(d.plan, c)
}

// Between returns the changes that turn a machine from one node into another. Things that are only
// in from are reset as on a machine that was never a node.
func Between(from, to Desired) Plan {
	seen, ledger := make(Observed), Ledger{}
	for _, item := range from {
		if item.Spared {
			continue
		}
		seen[item.Resource.Key()] = item.Resource
		if before := absence(item.Resource); before != nil {
			ledger.Entries = append(ledger.Entries, newEntry(item.Step, before, item.Resource, item.Owes))
		}
	}
	wanted := slices.DeleteFunc(slices.Clone(to), func(item Item) bool {
		key := item.Resource.Key()
		is := seen[key]
		if is == nil {
			if seen[key] = absence(item.Resource); seen[key] == nil { // it is unknown
				seen[key] = Absent{Path: key.Name()}
			}
			return false
		}
		_, unit := is.(Unit) // it may have to restart
		return !unit && Equal(is, item.Resource)
	})
	return Diff(wanted, to, seen, ledger.Forget(to.Keys()...)) // what both want is not undone
}
