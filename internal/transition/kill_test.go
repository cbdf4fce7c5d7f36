package transition

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A process that is killed anywhere - in each phase, and before and after each write of the record
// - is continued by the next one: the transition is finished, or it has gone back, and no phase
// that was finished before the recorded one is done again, except for the one before the gate.
func TestKilledAnywhere(t *testing.T) {
	cause := errors.New("it does not work")
	type campaign struct {
		kind Kind
		// fails is the phase that fails each time, "" for none; ends is what the machine is then.
		fails Phase
		ends  string
	}
	campaigns := []campaign{
		{Join, "", "new"}, {Change, "", "new"}, {Repair, "", "old"}, {Rollback, "", "old"},
		{Leave, "", ""},
		{Change, Apply, "old"}, {Change, Gate, "old"}, {Change, Prove, "old"},
	}
	points := 0
	for _, c := range campaigns {
		for n := 0; ; n++ {
			f := &fake{left: n, machine: "old", applied: "old"}
			if c.fails != "" {
				f.fails = failIn(c.kind, c.fails, cause)
			}
			when := fmt.Sprintf("%s failing in %q, killed at %d", c.kind, c.fails, n)
			_, killed := f.process(t.Context(), begun(c.kind))
			if !killed {
				break
			}
			points++
			f.finish(t, when, c.kind, c.ends)
		}
	}
	if points < 200 {
		t.Errorf("%d points only", points)
	}
	t.Logf("killed at %d points", points)
}

// finish runs the transition that is on disk, as often as it takes, each time killed a bit later.
func (f *fake) finish(t *testing.T, when string, k Kind, ends string) {
	t.Helper()
	if f.record == nil && len(f.done) == 0 {
		return // killed before it was on disk: the caller asks again
	}
	for again := 0; f.record != nil; again++ {
		if again > 40 {
			t.Fatalf("%s: never finished; left is %s", when, f.record)
		}
		f.left = again
		f.done = nil
		on := *f.saved()
		f.process(t.Context(), on)
		first := slices.Index(Phases(on.Kind), on.Phase)
		if on.Phase == Gate {
			first--
		}
		for _, p := range f.done {
			if i := slices.Index(Phases(on.Kind), p); i >= 0 && i < first && f.fails == nil {
				t.Errorf("%s: %s was done again", when, p)
			}
		}
	}
	if f.machine != ends || f.applied != ends {
		t.Errorf("%s: the machine is %q and %q is applied, want %q", when, f.machine, f.applied, ends)
	}
	failed := f.fails != nil
	if (len(f.rejected) > 0) != (failed && ends == "old" && f.touched()) {
		t.Errorf("%s: rejected is %v", when, f.rejected)
	}
	if failed && f.released == 0 {
		t.Errorf("%s: the cordon was not taken back", when)
	}
}

// touched reports whether the failing phase is one that changes the machine.
func (f *fake) touched() bool {
	probe := begun(Change)
	for _, probe.Phase = range Phases(Change) {
		if f.fails(&probe) != nil {
			return probe.Phase == Apply || probe.Phase == Gate
		}
	}
	return false
}
