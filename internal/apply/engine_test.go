package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

var (
	file    = state.NewFile("/etc/x", 0o644, "new")
	old     = state.File{Path: "/etc/x", Mode: 0o644, SHA256: state.Digest("old")}
	foreign = state.File{Path: "/etc/x", Mode: 0o644, SHA256: state.Digest("an admin's")}
	unit    = state.Unit{Name: "x.service", Enabled: state.Enabled, Active: true}
	want    = state.Desired{
		{Resource: file, Owes: []string{state.DaemonReload, "x.service"}}, {Resource: unit},
	}
	errBroken = errors.New("broken")
)

// What a thing was is on disk, contents and ledger, before anything is touched.
func TestWritesDownFirst(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, what := range []string{
		"backup /etc/x", "set path:/state/ledger.json", "set path:/etc/x", "reload",
		"set unit:x.service",
	} {
		at := slices.Index(m.done, what)
		if at <= last {
			t.Errorf("%s comes at the wrong place in %v", what, m.done)
		}
		last = at
	}
}

// ordered is a machine that notes backups, flushes, undos, and writes of the ledger, file and unit.
type ordered struct {
	*machine
	steps []string
}

func (o *ordered) Flush() error {
	o.steps = append(o.steps, "flush")
	return nil
}

func (o *ordered) Backup(ctx context.Context, f state.File, dir string) error {
	o.steps = append(o.steps, "backup")
	return o.machine.Backup(ctx, f, dir)
}

func (o *ordered) Set(ctx context.Context, c state.Change, content Contents) error {
	note, known := map[state.Key]string{
		"path:/state/ledger.json": "ledger", file.Key(): "file", unit.Key(): "unit",
	}[c.To.Key()]
	if c.Undo {
		note, known = "undo", true
	}
	if known {
		o.steps = append(o.steps, note)
	}
	return o.machine.Set(ctx, c, content)
}

// A content is on disk before the ledger that counts on it. Where a power cut has lost it all the
// same, it is kept again as long as the file is what it was.
func TestBackupComesBeforeTheLedger(t *testing.T) {
	m := newMachine(old)
	m.broken[file.Key()] = errBroken
	for range 2 {
		o := &ordered{machine: m}
		e := engine(t, m)
		e.Disk, e.Journal.disk = o, o
		if err := apply(t, e, want[:1]); !errors.Is(err, errBroken) {
			t.Fatalf("the error is %v", err)
		}
		if len(o.steps) < 2 || !slices.Equal(o.steps[:2], []string{"backup", "flush"}) {
			t.Errorf("the order is %v", o.steps)
		}
	}
	m.things[file.Key()] = foreign
	m.done = nil
	if err := apply(t, engine(t, m), want[:1]); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	if slices.Contains(m.done, "backup /etc/x") {
		t.Error("what is not the content before was taken for it")
	}
}

// An undo is on disk before the ledger forgets it, also if a later one fails.
func TestUndoComesBeforeTheLedger(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), state.Desired{want[1], want[0]}); err != nil {
		t.Fatal(err)
	}
	m.broken[unit.Key()] = errBroken
	o := &ordered{machine: m}
	e := engine(t, m)
	e.Host, e.Disk, e.Journal.disk = o, o, o
	if err := e.Revert(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	done := o.steps[slices.Index(o.steps, "undo"):]
	if !slices.Equal(done, []string{"undo", "undo", "flush", "ledger", "flush"}) {
		t.Errorf("the order is %v", done)
	}
}

// The files of a service are on disk before it starts.
func TestFilesComeBeforeTheirService(t *testing.T) {
	o := &ordered{machine: newMachine(old)}
	e := engine(t, o.machine)
	e.Host, e.Disk, e.Journal.disk = o, o, o
	if err := apply(t, e, state.Desired{{Resource: file}, {Resource: unit}}); err != nil {
		t.Fatal(err)
	}
	done := o.steps[slices.Index(o.steps, "file"):]
	if !slices.Equal(done[:3], []string{"file", "flush", "unit"}) {
		t.Errorf("the order is %v", done)
	}
}

// A run that dies between a file and the restart of its unit leaves the restart owed: the next run,
// a new process, pays it.
func TestOwedRestart(t *testing.T) {
	m := newMachine(old, unit)
	m.broken[unit.Key()] = errors.New("killed")
	if err := apply(t, engine(t, m), want); err == nil {
		t.Fatal("the run did not fail")
	}
	delete(m.broken, unit.Key())
	m.done = nil
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(m.done, "set unit:x.service") {
		t.Errorf("the unit was not restarted: %v", m.done)
	}
	if plan, _, err := engine(t, m).Plan(t.Context(), want, nil); err != nil || len(plan) > 0 {
		t.Errorf("afterwards there is still something to do: %v %v", plan, err)
	}
}

// A restart can be owed for a change that another engine makes.
func TestOwe(t *testing.T) {
	m := newMachine(file, unit)
	if err := engine(t, m).Owe(t.Context(), "x.service"); err != nil {
		t.Fatal(err)
	}
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(m.done, "set unit:x.service") {
		t.Errorf("the unit was not restarted: %v", m.done)
	}
}

// A second run of the same target is a no-op that writes nothing.
func TestNoOp(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	m.done = nil
	if err := apply(t, engine(t, m), want); err != nil || len(m.done) > 0 {
		t.Errorf("it did %v, %v", m.done, err)
	}
}

// A change that the machine accepts without an error and without an effect is an error.
func TestChecksThatItTook(t *testing.T) {
	m := newMachine()
	m.deaf[file.Key()] = true
	err := apply(t, engine(t, m), want)
	const text = "cannot write /etc/x: afterwards it is absent"
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v", err)
	}
}

// After a failed run the ledger remembers nothing that was never touched (M1).
func TestForgetsWhatItNeverTouched(t *testing.T) {
	m := newMachine(old)
	m.broken[file.Key()] = errBroken
	if err := apply(t, engine(t, m), want); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	if got := engine(t, m).Journal.Ledger().Keys(); !slices.Equal(got, []state.Key{file.Key()}) {
		t.Errorf("the ledger remembers %v", got)
	}
}

// What an earlier run undid before it died is forgotten by the next, so that what an admin puts
// there later is not undone (M1).
func TestForgetsWhatIsUndone(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	m.things[file.Key()] = old
	rest := want[1:]
	if err := apply(t, engine(t, m), rest); err != nil {
		t.Fatal(err)
	}
	m.things[file.Key()] = foreign
	if plan, _, err := engine(t, m).Plan(t.Context(), rest, nil); err != nil || len(plan) > 0 {
		t.Errorf("the admin's file is drift: %v, %v", plan, err)
	}
}

// What the same plan undid before it failed is forgotten too.
func TestForgetsBeforeItFails(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want[:1]); err != nil {
		t.Fatal(err)
	}
	m.broken[unit.Key()] = errBroken
	if err := apply(t, engine(t, m), want[1:]); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	if got := engine(t, m).Journal.Ledger().Keys(); !slices.Equal(got, []state.Key{unit.Key()}) {
		t.Errorf("the ledger remembers %v", got)
	}
}

// A thing that a plan for another target found undone, and that this one changes, is remembered.
func TestStaleThatIsChanged(t *testing.T) {
	m := newMachine(old)
	e := engine(t, m)
	if err := apply(t, e, want); err != nil {
		t.Fatal(err)
	}
	m.things[file.Key()] = old
	plan, _, err := e.Plan(t.Context(), want, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Plan(t.Context(), want[1:], nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if _, ok := e.Journal.Ledger().Entry(file.Key()); !ok {
		t.Error("a file that was written is not in the ledger")
	}
}

// What another process has changed is undone with a copy, or left, and both are reported (M1).
func TestKeepsAndLeaves(t *testing.T) {
	forward := state.Sysctl{Name: "ip_forward", Value: "1"}
	m := newMachine(old, state.Sysctl{Name: forward.Name, Value: "0"})
	wanted := state.Desired{{Resource: file}, {Resource: forward}}
	if err := apply(t, engine(t, m), wanted); err != nil {
		t.Fatal(err)
	}
	m.things[file.Key()] = foreign
	m.things[forward.Key()] = state.Sysctl{Name: forward.Name, Value: "2"}
	m.broken["keep"] = errBroken
	e := engine(t, m)
	if err := e.Revert(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	if is := m.things[file.Key()]; !state.Equal(is, foreign) {
		t.Errorf("without a copy the file became %s", state.Show(is))
	}
	if len(e.Left) != 1 || !state.Equal(e.Left[0].From, m.things[forward.Key()]) {
		t.Errorf("left are %v", e.Left)
	}
	delete(m.broken, "keep")
	e = engine(t, m)
	if err := e.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(e.Kept, []Kept{{"/etc/x", "/etc/x.kept"}}) {
		t.Errorf("kept are %v", e.Kept)
	}
	if is := m.things[file.Key()]; !state.Equal(is, old) {
		t.Errorf("the file is %s", state.Show(is))
	}
	if got := e.Journal.Ledger().Keys(); len(got) > 0 {
		t.Errorf("the ledger still remembers %v", got)
	}
}

// A change keeps a copy of what another process has written into a file of ours, and tells where.
func TestChangeKeepsEdits(t *testing.T) {
	m := newMachine(old)
	if err := apply(t, engine(t, m), want[:1]); err != nil {
		t.Fatal(err)
	}
	m.things[file.Key()] = foreign
	m.broken["keep"] = errBroken
	if err := apply(t, engine(t, m), want[:1]); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	if is := m.things[file.Key()]; !state.Equal(is, foreign) {
		t.Errorf("without a copy the file became %s", state.Show(is))
	}
	delete(m.broken, "keep")
	e := engine(t, m)
	var told []string
	e.Emit = func(event Event) { told = append(told, event.Kept) }
	if err := apply(t, e, want[:1]); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(told, []string{"", "/etc/x.kept"}) || len(e.Kept) != 1 {
		t.Errorf("told %q, kept %v", told, e.Kept)
	}
}

// Reverting goes on after an error, but takes nothing away under a service that does not stop or a
// package that is not removed.
func TestRevert(t *testing.T) {
	const theirs = "unit:y.service"
	for _, tt := range []struct {
		name   string
		broken state.Key
		left   []state.Key
	}{
		{"a file that cannot be restored", file.Key(), []state.Key{file.Key()}},
		{"a service that does not stop", unit.Key(), []state.Key{file.Key(), unit.Key()}},
		{"a service of the owner that does not start", theirs, []state.Key{theirs}},
		{"a package that is not removed", state.PackageKey("p"),
			[]state.Key{file.Key(), unit.Key(), theirs, state.PackageKey("p")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			installed := state.Package{Name: "p", State: state.PackageInstalled}
			m := newMachine(old, state.Unit{Name: "y.service", Active: true},
				state.Package{Name: "p", State: state.PackageAbsent})
			masked := state.Unit{Name: "y.service", Enabled: state.Masked}
			if err := apply(t, engine(t, m), append(slices.Clone(want),
				state.Item{Resource: masked}, state.Item{Resource: installed})); err != nil {
				t.Fatal(err)
			}
			m.broken[tt.broken] = errBroken
			e := engine(t, m)
			if err := e.Revert(t.Context()); err == nil {
				t.Fatal("no error")
			}
			if got := e.Journal.Ledger().Keys(); !slices.Equal(got, tt.left) {
				t.Errorf("the ledger still has %v, want %v", got, tt.left)
			}
			delete(m.broken, tt.broken)
			if err := engine(t, m).Revert(t.Context()); err != nil {
				t.Fatal(err)
			}
			if is := m.things[file.Key()]; !state.Equal(is, old) {
				t.Errorf("the file is %s", state.Show(is))
			}
		})
	}
}

// A plan observes no residue that is wanted, since that runs programs (m15); Apply does before it
// writes the ledger, and undo does.
func TestResidueIsObservedLate(t *testing.T) {
	chains := state.Residue{Kind: state.Chains, Match: "CNI-"}
	there := state.Residue{Kind: state.Chains, Match: "CNI-", Found: []string{"podman's"}}
	m := newMachine(there)
	wanted := state.Desired{{Resource: chains}}
	e := engine(t, m)
	plan, _, err := e.Plan(t.Context(), wanted, nil)
	if err != nil || slices.Contains(m.looked, chains.Key()) {
		t.Fatalf("the plan observed %v, %v", m.looked, err)
	}
	if err := e.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	entry, _ := e.Journal.Ledger().Entry(chains.Key())
	if !state.Equal(entry.Before.Resource, there) {
		t.Errorf("before is %s", state.Show(entry.Before.Resource))
	}
	m.looked = nil
	for _, later := range []state.Desired{nil, wanted} {
		now := wanted[len(later):]
		if _, _, err := engine(t, m).Plan(t.Context(), now, later); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(m.looked, chains.Key()) {
		t.Error("a plan observed what it only remembers")
	}
	if _, _, err := engine(t, m).Plan(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(m.looked, chains.Key()) {
		t.Error("undo did not observe the residue")
	}
}

// What cannot be observed is not changed, not forgotten, and reported.
func TestUnknown(t *testing.T) {
	cordon := state.Cordon{On: true}
	m := newMachine(state.Cordon{})
	wanted := state.Desired{{Resource: cordon}, {Resource: state.Opaque{Kind: "fifo"}}}
	if err := apply(t, engine(t, m), wanted); err != nil {
		t.Fatal(err)
	}
	m.things[cordon.Key()] = state.Unknown{Of: cordon.Key(), Why: "no answer"}
	plan, unknown, err := engine(t, m).Plan(t.Context(), wanted, nil)
	if err != nil || len(plan) > 0 || len(unknown) != 2 {
		t.Errorf("the plan is %v, unknown %v, %v", plan, unknown, err)
	}
	e := engine(t, m)
	if err := e.Revert(t.Context()); err == nil {
		t.Error("reverting what is unknown is no error")
	}
	if _, ok := e.Journal.Ledger().Entry(cordon.Key()); !ok {
		t.Error("it was forgotten")
	}
}

// One thing that the host fails to observe is unknown, and the others go on: to their undo, unless
// it may be a service that runs.
func TestBlind(t *testing.T) {
	other := state.NewFile("/etc/y", 0o600, "y")
	wanted := append(slices.Clone(want), state.Item{Resource: other})
	for _, tt := range []struct {
		blind state.Key
		left  []state.Key
	}{
		{file.Key(), []state.Key{file.Key()}},
		{unit.Key(), []state.Key{file.Key(), unit.Key(), other.Key()}},
	} {
		m := newMachine(old)
		if err := apply(t, engine(t, m), wanted); err != nil {
			t.Fatal(err)
		}
		delete(m.things, other.Key())
		m.blind[tt.blind] = errBroken
		e := engine(t, m)
		plan, unknown, err := e.Plan(t.Context(), wanted, nil)
		if err != nil || !slices.Equal(plan.Keys(), []state.Key{other.Key()}) {
			t.Errorf("the plan is %v, %v", plan, err)
		}
		blind, ok := errors.AsType[*BlindError](Blind(unknown))
		if !ok || len(blind.Things) != 1 || blind.Things[0].Of != tt.blind ||
			!errors.Is(blind, errBroken) || blind.Error() != errBroken.Error() {
			t.Errorf("unknown is %v", blind)
		}
		if err := e.Apply(t.Context(), plan); err != nil {
			t.Error(err)
		}
		if err := e.Revert(t.Context()); err == nil {
			t.Error("what cannot be observed was undone")
		}
		if got := engine(t, m).Journal.Ledger().Keys(); !slices.Equal(got, tt.left) {
			t.Errorf("the ledger remembers %v, want %v", got, tt.left)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := e.Plan(ctx, wanted, nil); !errors.Is(err, errBroken) {
			t.Errorf("at its end the error is %v", err)
		}
	}
	if err := Blind([]state.Unknown{written(state.Opaque{Kind: "fifo"})}); err != nil {
		t.Errorf("a kind that is not known was not observed: %v", err)
	}
}

// silent is a machine that answers no question about its units.
type silent struct{ *machine }

func (s *silent) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	if key == unit.Key() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.machine.Observe(ctx, key)
}

// What does not answer in time is unknown, and hides nothing else.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(old)
		v := View{Host: &silent{m}, Ledger: engine(t, m).Journal.Ledger(), Patience: time.Minute}
		began := time.Now()
		plan, unknown, err := v.Plan(t.Context(), slices.Concat(want[1:], want[:1]), nil)
		if err != nil || !slices.Equal(plan.Keys(), []state.Key{file.Key()}) {
			t.Errorf("the plan is %v, %v", plan, err)
		}
		if len(unknown) != 1 || unknown[0].Of != unit.Key() || time.Since(began) != time.Minute {
			t.Errorf("unknown is %v after %s", unknown, time.Since(began))
		}
	})
}

// Every event is sent as it happens, and a run stops between changes when it is cancelled.
func TestEvents(t *testing.T) {
	m := newMachine()
	e := engine(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	var done []bool
	e.Emit = func(event Event) {
		done = append(done, event.Done)
		cancel()
	}
	plan, _, err := e.Plan(ctx, want, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(ctx, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if !slices.Equal(done, []bool{false, true}) {
		t.Errorf("the events are %v", done)
	}
	if got := engine(t, m).Journal.Ledger().Keys(); len(got) != 2 {
		t.Errorf("the ledger remembers %v", got)
	}
}

// Whatever fails before the first touch leaves the machine as it is.
func TestErrorsBeforeTheFirstTouch(t *testing.T) {
	for name, breakIt := range map[string]func(*machine){
		"backup":    func(m *machine) { m.broken["backup"] = errBroken },
		"ledger":    func(m *machine) { m.broken["path:/state/ledger.json"] = errBroken },
		"directory": func(m *machine) { m.broken["path:/state"] = errBroken },
		"residue":   func(m *machine) { m.blind["residue:chain:X"] = errBroken },
		"state":     func(m *machine) { m.blind["path:/state/before"] = errBroken },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(old)
			e := engine(t, m)
			chains := state.Residue{Kind: state.Chains, Match: "X"}
			plan, _, err := e.Plan(t.Context(), append(want, state.Item{Resource: chains}), nil)
			if err != nil {
				t.Fatal(err)
			}
			breakIt(m)
			if err := e.Apply(t.Context(), plan); !errors.Is(err, errBroken) {
				t.Errorf("the error is %v", err)
			}
			if is := m.things[file.Key()]; !state.Equal(is, old) {
				t.Errorf("the file is %s", state.Show(is))
			}
		})
	}
}

// Errors of the host come back, whenever they happen.
func TestErrorsOfTheHost(t *testing.T) {
	m := newMachine(old)
	m.broken["reload"] = errBroken
	if err := apply(t, engine(t, m), want); !errors.Is(err, errBroken) {
		t.Errorf("a reload that fails: %v", err)
	}
	e := engine(t, newMachine(old))
	e.Wait = func(context.Context, state.Resource) error { return errBroken }
	if err := apply(t, e, want); !errors.Is(err, errBroken) {
		t.Errorf("a wait that fails: %v", err)
	}
}

// Undoing reloads systemd once, after all that it must forget; a service that starts again on the
// way has its own files read before, and what is undone after that is read too.
func TestRevertReloads(t *testing.T) {
	other := state.Unit{Name: "y.service", Enabled: state.Disabled}
	for name, tt := range map[string]struct {
		before []state.Resource
		want   []string
	}{
		"nothing starts": {nil, []string{
			"set unit:y.service", "set unit:x.service", "set path:/etc/x", "reload",
		}},
		"another starts again": {[]state.Resource{state.Unit{Name: "y.service", Active: true}}, []string{
			"reload", "set unit:y.service", "set unit:x.service", "set path:/etc/x", "reload",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(tt.before...)
			target := append(slices.Clone(want), state.Item{Resource: other})
			if err := apply(t, engine(t, m), target); err != nil {
				t.Fatal(err)
			}
			m.done = nil
			if err := engine(t, m).Revert(t.Context()); err != nil {
				t.Fatal(err)
			}
			ours := slices.DeleteFunc(m.done, func(what string) bool {
				return what == "set path:/state/ledger.json"
			})
			if !slices.Equal(ours, tt.want) {
				t.Errorf("it did %v, want %v", ours, tt.want)
			}
		})
	}
}

// A run that was killed may have left systemd with what its units were: the next one has it read
// them before it observes anything.
func TestResumeReloadsFirst(t *testing.T) {
	m := newMachine()
	if err := apply(t, engine(t, m), want); err != nil {
		t.Fatal(err)
	}
	if err := engine(t, m).Owe(t.Context(), state.DaemonReload); err != nil {
		t.Fatal(err)
	}
	m.done = nil
	if err := engine(t, m).Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(m.done) == 0 || m.done[0] != "reload" {
		t.Errorf("it did %v, want the reload first", m.done)
	}
}
