package transition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a machine whose phases only leave marks, and its disk.
type fake struct {
	// record is the transition on disk, or nil.
	record   []byte
	rejected []string
	released int
	done     []Phase
	// fails says which phases of which kind fail, and how.
	fails func(t *Transition) error
	// machine is the generation that the machine is, applied the one that was proved.
	machine, applied string
	// left is the number of touches that a process survives; negative is all.
	left int
}

// touch kills the process when its time has come: nothing after it is executed.
func (f *fake) touch() {
	if f.left == 0 {
		runtime.Goexit()
	}
	f.left--
}

func (f *fake) runner() Runner {
	step := func(ctx context.Context, t *Transition, p Phase) error {
		f.touch()
		if f.fails != nil {
			if err := f.fails(t); err != nil {
				return err
			}
		}
		if saved := f.saved(); saved == nil || saved.Phase != t.Phase || saved.Kind != t.Kind {
			return fmt.Errorf("phase %s of %s is not on disk: %+v", t.Phase, t.Kind, saved)
		}
		f.work(t, p)
		f.done = append(f.done, p)
		f.touch()
		return ctx.Err()
	}
	r := Runner{
		Steps: map[Phase]Step{}, Now: time.Now,
		Save: func(_ context.Context, t Transition) error {
			f.touch()
			var err error
			f.record, err = json.Marshal(t)
			f.touch()
			return err
		},
		Clear: func(context.Context) error { f.touch(); f.record = nil; f.touch(); return nil },
		Reject: func(_ context.Context, t Transition, _ error) error {
			f.touch()
			f.rejected = append(f.rejected, t.To)
			f.touch()
			return nil
		},
		Release: func(context.Context, Transition) error {
			f.touch()
			f.released++
			f.touch()
			return nil
		},
	}
	for _, phases := range table {
		for _, p := range phases {
			r.Steps[p] = func(ctx context.Context, t *Transition) error { return step(ctx, t, p) }
		}
	}
	return r
}

// work does the work of a phase.
func (f *fake) work(t *Transition, p Phase) {
	switch p {
	case Cordon:
		t.Cordoned = true
	case Apply, Restore:
		f.machine = t.To
	case Commit:
		f.applied = t.To
		f.released++
	case Undo:
		f.machine = ""
	case Erase:
		f.applied = ""
	}
}

// saved returns the transition on disk, or nil.
func (f *fake) saved() *Transition {
	if f.record == nil {
		return nil
	}
	var t Transition
	if err := json.Unmarshal(f.record, &t); err != nil {
		panic(err)
	}
	return &t
}

// process runs t in a process of its own, which may be killed: then killed is true.
func (f *fake) process(ctx context.Context, t Transition) (err error, killed bool) {
	ended := make(chan struct{})
	killed = true
	go func() {
		defer close(ended)
		err = f.runner().Run(ctx, t, "")
		killed = false
	}()
	<-ended
	return err, killed
}

func begun(k Kind) Transition {
	t := Transition{Kind: k, From: "old", To: "new", Phase: Phases(k)[0], Drains: k == Change}
	switch k {
	case Join:
		t.From = ""
	case Repair:
		t.To = "old"
	case Rollback:
		t.From, t.To, t.Cause = "new", "old", "the first failure"
	case Leave:
		t.To = ""
	}
	return t
}

func kinds() []Kind { return []Kind{Join, Change, Repair, Rollback, Leave} }

// failIn makes one phase of one kind fail.
func failIn(k Kind, p Phase, err error) func(*Transition) error {
	return func(t *Transition) error {
		if t.Kind == k && t.Phase == p {
			return err
		}
		return nil
	}
}

// Each kind carries out its phases in order, each of them on disk before it begins, and then its
// record goes.
func TestPhases(t *testing.T) {
	for _, k := range kinds() {
		f := &fake{left: -1, machine: "old", applied: "old"}
		if err, _ := f.process(t.Context(), begun(k)); err != nil || f.record != nil {
			t.Errorf("%s: %v, left %s", k, err, f.record)
		}
		if diff := cmp.Diff(Phases(k), f.done); diff != "" {
			t.Errorf("%s: %s", k, diff)
		}
		if want := begun(k).To; f.machine != want || f.applied != want {
			t.Errorf("%s: the machine is %q and %q is applied", k, f.machine, f.applied)
		}
	}
}

// outcome describes the consequence of a failure.
type outcome struct {
	// Back tells that the machine went back, Rejected that the generation is not tried again, and
	// Released that the cordon was taken back.
	Back, Rejected, Released bool
	// Remains is the transition that is continued by the next run.
	Remains string
}

// What follows a failure of each phase, for each kind.
func TestFailed(t *testing.T) {
	untouched := outcome{Released: true}
	back := outcome{Back: true, Rejected: true, Released: true}
	remains := func(k Kind, p Phase) outcome { return outcome{Remains: string(k) + " " + string(p)} }
	for _, test := range []struct {
		kind  Kind
		phase Phase
		want  outcome
	}{
		{Join, Prefetch, remains(Join, Prefetch)},
		{Join, Enrol, remains(Join, Enrol)},
		{Join, Apply, remains(Join, Apply)},
		{Join, Gate, remains(Join, Gate)},
		{Join, Commit, remains(Join, Commit)},
		{Change, Prefetch, untouched},
		{Change, Enrol, untouched},
		{Change, Prove, untouched},
		{Change, Ask, untouched},
		{Change, Cordon, untouched},
		{Change, Drain, untouched},
		{Change, Apply, back},
		{Change, Gate, back},
		{Change, Commit, remains(Change, Commit)},
		{Repair, Prefetch, untouched},
		{Repair, Enrol, untouched},
		{Repair, Apply, untouched},
		{Repair, Gate, untouched},
		{Repair, Commit, untouched},
		{Rollback, Restore, remains(Rollback, Restore)},
		{Rollback, Gate, remains(Rollback, Gate)},
		{Rollback, Commit, remains(Rollback, Commit)},
		{Leave, Drain, remains(Leave, Drain)},
		{Leave, Farewell, remains(Leave, Farewell)},
		{Leave, Undo, remains(Leave, Undo)},
		{Leave, Erase, remains(Leave, Erase)},
	} {
		t.Run(string(test.kind)+" "+string(test.phase), func(t *testing.T) {
			cause := errors.New("it does not work")
			f := &fake{left: -1, fails: failIn(test.kind, test.phase, cause)}
			err, _ := f.process(t.Context(), begun(test.kind))
			if !errors.Is(err, cause) {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(test.want, f.outcome(err)); diff != "" {
				t.Error(diff)
			}
			rolling := test.kind == Rollback
			if strings.Contains(fmt.Sprint(err), "the first failure\nand cannot go back") != rolling {
				t.Errorf("the error is %v", err)
			}
		})
	}
	for _, k := range kinds() { // so that no phase is added without saying what follows
		want := map[Kind]int{Join: 5, Change: 9, Repair: 5, Rollback: 3, Leave: 4}[k]
		if len(table[k]) != want {
			t.Errorf("%s has %d phases", k, len(table[k]))
		}
	}
}

func (f *fake) outcome(err error) outcome {
	o := outcome{
		Back: Of(err).Kind == RolledBack, Rejected: len(f.rejected) > 0, Released: f.released > 0,
	}
	if t := f.saved(); t != nil {
		o.Remains = string(t.Kind) + " " + string(t.Phase)
	}
	return o
}

// A transition that follows one which has touched the machine goes back in whatever phase it fails,
// or remains. What was never on the machine is rejected only where it cannot work, and a fault of
// the disk rejects nothing.
func TestTouched(t *testing.T) {
	cause := errors.New("it does not work")
	rolledBack := outcome{Back: true, Rejected: true, Released: true}
	restored := outcome{Released: true}
	for _, test := range []struct {
		kind  Kind
		phase Phase
		cause error
		want  outcome
	}{
		{Change, Prefetch, cause, restored},
		{Change, Prove, &Outcome{Kind: Refused, Err: cause}, rolledBack},
		{Change, Drain, cause, restored},
		{Change, Apply, cause, rolledBack},
		{Change, Gate, cause, rolledBack},
		{Change, Apply, fmt.Errorf("%w: %w", cause, syscall.ENOSPC), restored},
		{Change, Gate, fmt.Errorf("%w: %w", cause, syscall.EIO), restored},
		{Change, Commit, cause, outcome{Remains: "change commit"}},
		{Repair, Prefetch, cause, outcome{Remains: "repair prefetch"}},
		{Repair, Apply, cause, outcome{Remains: "repair apply"}},
	} {
		t.Run(string(test.kind)+" "+string(test.phase), func(t *testing.T) {
			f := &fake{left: -1, machine: "half", fails: failIn(test.kind, test.phase, test.cause)}
			follows := begun(test.kind)
			follows.Touched = true
			err, _ := f.process(t.Context(), follows)
			if !errors.Is(err, cause) {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(test.want, f.outcome(err)); diff != "" {
				t.Error(diff)
			}
			if test.want.Remains == "" && f.machine != "old" {
				t.Errorf("the machine is %s", f.machine)
			}
			if saved := f.saved(); saved != nil && !saved.Touched {
				t.Error("the record has lost that the machine was touched")
			}
		})
	}
}

// A transition of a kind that this version does not know remains.
func TestUnknownKind(t *testing.T) {
	f := &fake{left: -1, record: []byte(`{"kind":"reboot","phase":"x"}`)}
	err, _ := f.process(t.Context(), *f.saved())
	if err == nil || f.record == nil {
		t.Errorf("it ended with %v, and left %s", err, f.record)
	}
}

// A rollback that stops before its gate has restored the machine, and is continued there.
func TestUntil(t *testing.T) {
	f := &fake{left: -1, machine: "new", applied: "old"}
	if err := f.runner().Run(t.Context(), begun(Rollback), Gate); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outcome{Remains: "rollback gate"}, f.outcome(nil)); diff != "" {
		t.Error(diff)
	}
	if f.machine != "old" || !slices.Equal(f.done, []Phase{Restore}) {
		t.Errorf("the machine is %s, done is %v", f.machine, f.done)
	}
	if err := f.runner().Run(t.Context(), *f.saved(), ""); err != nil || f.record != nil {
		t.Errorf("then %v, left is %s", err, f.record)
	}
}

// What was asked for and cannot work is rejected, and nothing was touched.
func TestRefused(t *testing.T) {
	cause := errors.New("the secret is wrong")
	f := &fake{left: -1, fails: failIn(Change, Prove, &Outcome{Kind: Refused, Err: cause})}
	err, _ := f.process(t.Context(), begun(Change))
	if !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("the error is %v", err)
	}
	if diff := cmp.Diff(outcome{Rejected: true, Released: true}, f.outcome(err)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Phase{Prefetch, Enrol}, f.done); diff != "" {
		t.Error(diff)
	}
}

// A phase that has not failed, but was stopped, superseded, or cannot tell, is continued by the
// next run.
func TestInterrupted(t *testing.T) {
	for name, interrupt := range map[string]func(stop context.CancelFunc) error{
		"stopped": func(stop context.CancelFunc) error { stop(); return context.Canceled },
		"superseded": func(context.CancelFunc) error {
			return fmt.Errorf("%w: by bootstrap", ErrSuperseded)
		},
		"undecided": func(context.CancelFunc) error {
			return fmt.Errorf("%w: no answer", ErrUndecided)
		},
	} {
		for _, k := range kinds() {
			for _, p := range Phases(k) {
				t.Run(name+" "+string(k)+" "+string(p), func(t *testing.T) {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					f := &fake{left: -1, machine: "old", applied: "old"}
					f.fails = func(t *Transition) error {
						if t.Kind == k && t.Phase == p {
							return interrupt(stop)
						}
						return nil
					}
					err, _ := f.process(ctx, begun(k))
					want := outcome{Remains: string(k) + " " + string(p)}
					if diff := cmp.Diff(want, f.outcome(err)); diff != "" || err == nil {
						t.Errorf("%v: %s", err, diff)
					}
					f.fails = nil
					err, _ = f.process(t.Context(), *f.saved())
					phases := Phases(k)
					if p == Gate { // the machine may have changed since
						n := slices.Index(phases, Gate)
						phases = slices.Insert(phases, n, phases[n-1])
					}
					if err != nil || f.record != nil || !slices.Equal(f.done, phases) {
						t.Errorf("then %v; done %v, left %s", err, f.done, f.record)
					}
				})
			}
		}
	}
}

// A rollback that is interrupted says so, and not that there is no way back.
func TestRollbackInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cause := errors.New("kubelet does not start")
	f := &fake{left: -1, machine: "old", applied: "old"}
	f.fails = func(t *Transition) error {
		switch {
		case t.Kind == Change && t.Phase == Apply:
			return cause
		case t.Phase == Gate:
			stop()
			return ctx.Err()
		}
		return nil
	}
	err, _ := f.process(ctx, begun(Change))
	if !errors.Is(err, cause) || strings.Contains(err.Error(), "cannot go back") {
		t.Errorf("the error is %v", err)
	}
	got := f.saved()
	if got == nil || got.Kind != Rollback || got.Phase != Gate || got.Cause != cause.Error() {
		t.Errorf("left is %+v", got)
	}
}

// A rollback that fails says both, and the next run goes on with it.
func TestRollbackFails(t *testing.T) {
	cause, second := errors.New("kubelet does not start"), errors.New("the disk is full")
	f := &fake{left: -1, machine: "old", applied: "old", fails: func(t *Transition) error {
		switch {
		case t.Kind == Change && t.Phase == Gate:
			return cause
		case t.Phase == Restore:
			return second
		}
		return nil
	}}
	err, _ := f.process(t.Context(), begun(Change))
	both := errors.Is(err, cause) && errors.Is(err, second)
	if !both || !strings.Contains(err.Error(), "cannot go back") {
		t.Errorf("the error is %v", err)
	}
	f.fails = nil
	err, _ = f.process(t.Context(), *f.saved())
	if err != nil || f.machine != "old" || f.applied != "old" {
		t.Errorf("then %v; the machine is %q, applied is %q", err, f.machine, f.applied)
	}
}

// The cordon passes from a change to its rollback, and the cause with it.
func TestBack(t *testing.T) {
	now := time.Now()
	change := begun(Change)
	change.Cordoned, change.Attempt, change.Cluster = true, 3, &Cluster{Server: "https://new"}
	want := Transition{
		Kind: Rollback, From: "new", To: "old", Phase: Restore, Began: now, Cordoned: true,
		Cause: "it fails",
	}
	if diff := cmp.Diff(want, change.Back(errors.New("it fails"), now)); diff != "" {
		t.Error(diff)
	}
}

// A change that was rolled back ends with its cause first, and says that the node is as it was.
func TestRolledBackSays(t *testing.T) {
	cause := errors.New("it fails")
	f := &fake{left: -1, fails: failIn(Change, Gate, cause)}
	err, _ := f.process(t.Context(), begun(Change))
	if Of(err).Kind != RolledBack || !errors.Is(err, cause) {
		t.Fatalf("the error is %v", err)
	}
	text := err.Error()
	back := strings.Contains(text, "previous configuration is back")
	if !strings.HasPrefix(text, "it fails\n") || !back {
		t.Error(text)
	}
}

// An outcome is the error that it wraps, whatever its kind.
func TestOutcomeIsItsCause(t *testing.T) {
	cause := errors.New("the secret is wrong")
	for _, kind := range []OutcomeKind{Failed, Waits, Busy, Refused, RolledBack} {
		o := &Outcome{Kind: kind, Err: cause}
		if !errors.Is(o, cause) || o.Error() != cause.Error() || Of(o).Kind != kind {
			t.Errorf("%s: the error is %v", kind, o)
		}
	}
}

// A disk that cannot be written stops a transition before its next phase; what was recorded
// remains.
func TestSaveFails(t *testing.T) {
	full := errors.New("no space left on device")
	for _, k := range kinds() {
		for n := range Phases(k) {
			f := &fake{left: -1, machine: "old", applied: "old"}
			r := f.runner()
			save := r.Save
			r.Save = func(ctx context.Context, t Transition) error {
				if t.Phase == Phases(k)[n] || t.Kind != k {
					return full
				}
				return save(ctx, t)
			}
			r.Reject = func(context.Context, Transition, error) error { return full }
			err := r.Run(t.Context(), begun(k), "")
			if !errors.Is(err, full) || len(f.done) != n {
				t.Errorf("%s, phase %d: %v after %v", k, n, err, f.done)
			}
		}
	}
}

// A record that cannot be removed is an error, also where the machine is again what it was.
func TestClearFails(t *testing.T) {
	full := errors.New("read-only file system")
	unhealthy := failIn(Change, Gate, errors.New("unhealthy"))
	for _, fails := range []func(*Transition) error{nil, unhealthy} {
		f := &fake{left: -1, fails: fails}
		r := f.runner()
		r.Clear = func(context.Context) error { return full }
		err := r.Run(t.Context(), begun(Change), "")
		if !errors.Is(err, full) || Of(err).Kind == RolledBack {
			t.Errorf("the error is %v", err)
		}
	}
}
