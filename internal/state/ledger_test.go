package state

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// What a thing was before is recorded at its first touch and never again.
func TestLedgerKeepsTheFirstBefore(t *testing.T) {
	newer := NewFile(file.Path, 0o644, "newer")
	ledger := Ledger{}.Record(Plan{{From: old, To: file}}).Record(Plan{{From: file, To: newer}})
	got, _ := ledger.Entry(file.Key())
	if !Equal(got.Before.Resource, old) || !Equal(got.Ours.Resource, newer) {
		t.Errorf("entry is %+v; want before old and ours newer", got)
	}
	if len(ledger.Entries) != 1 {
		t.Errorf("there are %d entries, not one", len(ledger.Entries))
	}
}

// Until a change is done, what we had made of the thing before counts as ours; a change by others
// does not.
func TestLedgerPrior(t *testing.T) {
	newer := NewFile(file.Path, 0o644, "newer")
	ledger := remembers(entry(old, file))
	plan := Plan{{From: file, To: newer}}
	recorded := ledger.Record(plan)
	if c := Diff(nil, nil, see(file), recorded); len(c) != 1 || c[0].Keep {
		t.Errorf("killed before the write, undo is %s", show(c))
	}
	done := recorded.Done(plan)
	if c := Diff(nil, nil, see(file), done); len(c) != 1 || !c[0].Keep {
		t.Errorf("put back by another process, undo is %s", show(c))
	}
	// Killed twice: the second plan starts from the first one's beginning.
	again := recorded.Record(Plan{{From: file, To: NewFile(file.Path, 0o644, "newest")}})
	if c := Diff(nil, nil, see(file), again); len(c) != 1 || c[0].Keep {
		t.Errorf("killed twice, undo is %s", show(c))
	}
	edited := ledger.Record(Plan{{From: foreign, To: newer}})
	if c := Diff(nil, nil, see(foreign), edited); len(c) != 1 || !c[0].Keep {
		t.Errorf("what an admin had edited is undone as ours: %s", show(c))
	}
}

// What a plan never touched is not remembered (M1), and what it owes is not owed.
func TestTouched(t *testing.T) {
	link := Link{Path: "/usr/bin/x", Target: "/opt/x"}
	was := remembers(entry(Absent{link.Path}, link))
	was.Owed = []string{"before.service"}
	plan := Plan{
		{From: old, To: file, Owes: []string{"a.service"}},
		{From: link, To: Link{Path: link.Path, Target: "/opt/y"}, Owes: []string{"b.service"}},
		{From: missing, To: running},
	}
	got := was.Record(plan).Touched(plan[:1], was)
	if want := []Key{link.Key(), file.Key()}; !slices.Equal(got.Keys(), want) {
		t.Errorf("the ledger remembers %v, want %v", got.Keys(), want)
	}
	if e, _ := got.Entry(link.Key()); !Equal(e.Ours.Resource, link) {
		t.Errorf("the link is remembered as %s", Show(e.Ours.Resource))
	}
	if want := []string{"before.service", "a.service"}; !slices.Equal(got.Owed, want) {
		t.Errorf("owed are %v, want %v", got.Owed, want)
	}
}

// Content never shows: not in plans, not in the ledger.
func TestContentIsHidden(t *testing.T) {
	secret := NewFile("/etc/token", 0o600, "canary")
	plan := Diff(want(secret), nil, see(Absent{secret.Path}), Ledger{})
	ledger, err1 := json.Marshal(Ledger{}.Record(plan))
	desired, err2 := json.Marshal(want(secret))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for _, text := range []string{string(ledger), string(desired), show(plan), Show(secret)} {
		if strings.Contains(text, "canary") {
			t.Errorf("content shows in %q", text)
		}
	}
}
