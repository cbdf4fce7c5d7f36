// Package apply is the engine: it observes a host, lets package state compare, and carries out the
// resulting plan. All changes of a host go through it. Before a plan's first touch, the ledger on
// disk records what it will change, so that the next run can finish or undo a killed one.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Host is observed and changed by an engine: a machine, or its Node object.
type Host interface {
	Observer
	// Set changes a thing to c.To. A file's content that is not in c.To is read by its digest.
	Set(ctx context.Context, c state.Change, content Contents) error
}

// Contents opens the content of a file by its digest.
type Contents = func(sha256 string) (io.ReadCloser, error)

// Disk is the machine that holds the ledger.
type Disk interface {
	Host
	// Flush syncs all changes of Set to disk.
	Flush() error
	// Reload makes systemd read its unit files again.
	Reload(ctx context.Context) error
	// Backup copies the content of a file to dir, named by its digest.
	Backup(ctx context.Context, file state.File, dir string) error
	// Keep copies a file or link to a free name beside it, and returns that name.
	Keep(ctx context.Context, from state.Resource) (kept string, err error)
	// Sweep removes temporary files of a killed run beside the given things.
	Sweep(keys []state.Key) error
	Files
	Open(path string) (io.ReadCloser, error)
}

// Engine applies plans to one host. It is used by one goroutine at a time.
type Engine struct {
	Host Host
	// Disk holds the files, units and the ledger; the same as Host unless Host is a Node object.
	Disk    Disk
	Journal *Journal
	// Wait blocks until the target of a resource exists (a link's artifact); may be nil.
	Wait func(ctx context.Context, to state.Resource) error
	Emit func(Event) // receives every event; nil drops them

	// Kept are copies of things that others had changed, Left those left to them, of all plans.
	Kept []Kept
	Left []state.Change

	stale []state.Key // the ledger entries that the last Plan found already undone
}

// Kept is a copy of a thing that was changed or undone although another process had changed it.
type Kept struct{ Path, Copy string }

// Observe observes everything in now, later and the ledger.
func (e *Engine) Observe(ctx context.Context, now, later state.Desired) (state.Observed, error) {
	return View{Host: e.Host, Ledger: e.Journal.Ledger()}.Observe(ctx, now, later)
}

// Plan is View.Plan; the next Apply removes stale entries from the ledger.
func (e *Engine) Plan(ctx context.Context, now,
	later state.Desired) (state.Plan, []state.Unknown, error) {
	seen, err := e.Observe(ctx, now, later)
	if err != nil {
		return nil, nil, err
	}
	ledger := e.Journal.Ledger()
	e.stale = state.Stale(now, later, seen, ledger)
	return state.Diff(now, later, seen, ledger), seen.Unknown(), nil
}

// Apply carries out plan and stops at the first error. Applying again continues there. It removes
// from the ledger things that are back in their old state, and those never touched.
func (e *Engine) Apply(ctx context.Context, plan state.Plan) error {
	if len(plan) == 0 && len(e.stale) == 0 {
		return nil
	}
	was := e.Journal.Ledger()
	plan, err := e.remember(ctx, plan)
	if err != nil {
		return err
	}
	for i, c := range plan {
		if err := e.change(ctx, c); err != nil {
			ledger := e.Journal.Ledger().Touched(plan[:i+1], was).Done(plan[:i])
			saved := e.Journal.Save(context.WithoutCancel(ctx), ledger)
			return errors.Join(fmt.Errorf("step %s: %w", c.Step, err), saved)
		}
	}
	return e.finish(ctx, plan)
}

// Revert undoes everything in the ledger, latest first. It continues after an error, unless a
// service does not stop or its state is unknown. Remaining entries stay in the ledger.
func (e *Engine) Revert(ctx context.Context) error {
	if err := e.Resume(ctx); err != nil {
		return err
	}
	plan, unknown, err := e.Plan(ctx, nil, nil)
	if err != nil {
		return err
	}
	var problems []error
	for _, u := range unknown {
		const form = "cannot undo %s: it cannot be observed: %s"
		problems = append(problems, fmt.Errorf(form, u.Of.Name(), u.Why))
	}
	if slices.ContainsFunc(unknown, func(u state.Unknown) bool { // it may be in use
		entry, ok := e.Journal.Ledger().Entry(u.Of)
		return ok && stops(entry.Before.Resource)
	}) {
		return errors.Join(append(problems, errUnchanged)...)
	}
	if plan, err = e.remember(ctx, plan); err != nil {
		return err
	}
	var done state.Plan
	for _, c := range plan {
		err := e.change(ctx, c)
		if err == nil {
			done = append(done, c)
			continue
		}
		problems = append(problems, fmt.Errorf("step %s: %w", c.Step, err))
		unit, _ := c.To.(state.Unit)
		if stops(c.To) && !unit.Active || ctx.Err() != nil {
			saved := e.Journal.Save(context.WithoutCancel(ctx), e.Journal.Ledger().Done(done))
			return errors.Join(append(problems, errUnchanged, saved)...)
		}
	}
	return errors.Join(errors.Join(problems...), e.finish(ctx, done))
}

var errUnchanged = errors.New("what was left is unchanged; run unbootstrap again")

// stops reports whether a failure of this ends the undo: a service may still run, or be installed.
func stops(r state.Resource) bool {
	_, isUnit := r.(state.Unit)
	_, isPackage := r.(state.Package)
	return isUnit || isPackage
}

// Resume makes systemd read its unit files if a killed run owes that, as they are stale otherwise.
func (e *Engine) Resume(ctx context.Context) error {
	if !e.Journal.Ledger().Owes(state.DaemonReload) {
		return nil
	}
	if err := e.Disk.Reload(ctx); err != nil {
		return err
	}
	return e.Journal.Save(ctx, e.Journal.Ledger().Paid(state.DaemonReload))
}

// Owe records that units must restart because of a change on another host.
func (e *Engine) Owe(ctx context.Context, units ...string) error {
	return e.Journal.Save(ctx, e.Journal.Ledger().Owe(units...))
}

// remember stores what the undo of the plan needs: contents first, then the ledger that refers to
// them. It returns the plan with the residues that it has found.
func (e *Engine) remember(ctx context.Context, plan state.Plan) (state.Plan, error) {
	plan = slices.Clone(plan)
	for i, c := range plan {
		if c.Undo {
			continue
		}
		var err error
		if _, ok := c.To.(state.Residue); ok {
			c.From, err = e.Host.Observe(ctx, c.To.Key())
			plan[i].From, plan[i].To = c.From, c.From
		}
		if file, ok := c.From.(state.File); ok && !state.Equal(file, c.To) && e.isBefore(file) {
			err = e.Journal.Backup(ctx, file)
		}
		if err != nil {
			return nil, err
		}
	}
	return plan, e.Journal.Save(ctx, e.Journal.Ledger().Record(plan))
}

// isBefore reports whether an observed file has its content from before it was touched.
func (e *Engine) isBefore(seen state.File) bool {
	entry, known := e.Journal.Ledger().Entry(seen.Key())
	before, ok := entry.Before.Resource.(state.File)
	return !known || ok && before.SHA256 == seen.SHA256
}

func (e *Engine) change(ctx context.Context, c state.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.emit(Event{Change: c})
	kept, err := e.touch(ctx, c)
	e.emit(Event{Change: c, Done: true, Err: err, Kept: kept})
	return err
}

// touch makes a change. It returns the path of the copy that it has kept, "" if none.
func (e *Engine) touch(ctx context.Context, c state.Change) (kept string, err error) {
	if c.Leave {
		e.Left = append(e.Left, c)
		return "", nil
	}
	if e.Wait != nil {
		if err := e.Wait(ctx, c.To); err != nil {
			return "", err
		}
	}
	unit, isUnit := c.To.(state.Unit)
	if isUnit && unit.Active { // a service's files must be on disk before it starts
		if err := errors.Join(e.Disk.Flush(), e.Resume(ctx)); err != nil {
			return "", err
		}
	}
	// A start before this change may have done the reload that was owed for both.
	if slices.Contains(c.Owes, state.DaemonReload) {
		if err := e.Owe(ctx, state.DaemonReload); err != nil {
			return "", err
		}
	}
	if c.Keep {
		if kept, err = e.Disk.Keep(ctx, c.From); err != nil {
			return "", err
		}
		e.Kept = append(e.Kept, Kept{Path: c.From.Key().Name(), Copy: kept})
	}
	if err := e.Host.Set(ctx, c, e.Journal.Content); err != nil {
		return kept, err
	}
	if err := e.check(ctx, c); err != nil {
		return kept, err
	}
	if isUnit {
		err = e.Journal.Save(ctx, e.Journal.Ledger().Paid(unit.Name))
	}
	return kept, err
}

// check returns an error if a change has had no effect. An undo may leave what others use.
func (e *Engine) check(ctx context.Context, c state.Change) error {
	if _, residue := c.To.(state.Residue); residue || c.Undo {
		return nil
	}
	is, err := e.Host.Observe(ctx, c.To.Key())
	if err != nil {
		return err
	}
	if !state.Satisfies(is, c.To) {
		change := state.Describe(state.Change{To: c.To})
		return fmt.Errorf("cannot %s: afterwards it is %s", change, state.Show(is))
	}
	return nil
}

// finish ends a run: it flushes, does the owed reload, and removes undone entries.
func (e *Engine) finish(ctx context.Context, done state.Plan) error {
	if err := errors.Join(e.Disk.Flush(), e.Resume(ctx)); err != nil {
		return err
	}
	touched := done.Keys()
	stale := slices.DeleteFunc(e.stale, func(key state.Key) bool {
		return slices.Contains(touched, key) // it was changed since it was observed
	})
	e.stale = nil
	return e.Journal.Save(ctx, e.Journal.Ledger().Done(done).Forget(stale...))
}

func (e *Engine) emit(event Event) {
	if e.Emit != nil {
		e.Emit(event)
	}
}

// Event is one action of the engine.
type Event struct {
	Change state.Change
	Done   bool // the change is made, or has failed with Err; before, it begins
	Err    error
	Kept   string // the path of the copy of another process's version
}
