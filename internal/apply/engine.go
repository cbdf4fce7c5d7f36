// Package apply is the engine: it observes a host, lets package state compare, and carries out the resulting plan. It is the
// only code that has a host changed. Before the first touch of a plan, what it will change is in the ledger on disk; so a run
// that is killed anywhere can be finished or undone by the next.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Host is a machine, as far as the engine needs it.
type Host interface {
	// Observe returns what is at key. It changes nothing.
	Observe(ctx context.Context, key state.Key) (state.Resource, error)
	// Set brings about c.To. A file whose content is not in c.To is read from content, by its digest.
	Set(ctx context.Context, c state.Change, content func(sha256 string) (io.ReadCloser, error)) error
	// Flush returns when all that Set has changed is on disk.
	Flush() error
	// Reload makes systemd read its unit files again.
	Reload(ctx context.Context) error
	// Backup copies the content of a file to dir, named by its digest.
	Backup(ctx context.Context, file state.File, dir string) error
	// Sweep removes temporary files that a killed run has left beside the given things.
	Sweep(keys []state.Key) error
	// ReadFile and Open read a file.
	ReadFile(path string) ([]byte, error)
	Open(path string) (io.ReadCloser, error)
}

// Engine applies plans to one host. It is used by one goroutine at a time.
type Engine struct {
	Host    Host
	Journal *Journal
	// Wait blocks until what the resource refers to is there (a link's artifact); nil waits for nothing.
	Wait func(ctx context.Context, to state.Resource) error
	// Emit receives every event; nil drops them.
	Emit func(Event)
	Log  *slog.Logger
}

// Error is a change that could not be made.
type Error struct {
	Change state.Change
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("step %s: %v", e.Change.Step, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Observe returns what is there of everything that want names or the ledger remembers.
func (e *Engine) Observe(ctx context.Context, want state.Desired) (state.Observed, error) {
	seen := make(state.Observed)
	for _, key := range slices.Concat(want.Keys(), e.Journal.Ledger().Keys()) {
		if _, ok := seen[key]; ok {
			continue
		}
		r, err := e.Host.Observe(ctx, key)
		if err != nil {
			return nil, err
		}
		seen[key] = r
	}
	return seen, nil
}

// Plan returns the changes that make the host what want says.
func (e *Engine) Plan(ctx context.Context, want state.Desired) (state.Plan, error) {
	seen, err := e.Observe(ctx, want)
	if err != nil {
		return nil, err
	}
	return state.Diff(want, seen, e.Journal.Ledger()), nil
}

// Apply carries out plan and stops at the first error. Applying again continues where it stopped.
func (e *Engine) Apply(ctx context.Context, plan state.Plan) error {
	if len(plan) == 0 {
		return nil
	}
	if err := e.remember(ctx, plan); err != nil {
		return err
	}
	var undone []state.Key
	for _, c := range plan {
		if err := e.change(ctx, c); err != nil {
			return &Error{Change: c, Err: err}
		}
		if c.Undo {
			undone = append(undone, c.To.Key())
		}
	}
	return e.settle(ctx, undone)
}

// Revert brings everything in the ledger back to what it was before us, latest first. It goes on after an error, except when a
// service does not stop: what that service uses must not be taken away under it. What could not be undone stays in the ledger,
// and a later Revert tries again.
func (e *Engine) Revert(ctx context.Context) error {
	plan, err := e.Plan(ctx, nil)
	if err != nil {
		return err
	}
	if err := e.remember(ctx, plan); err != nil {
		return err
	}
	failed := make(map[state.Key]bool)
	var problems []error
	for _, c := range plan {
		err := e.change(ctx, c)
		if err == nil {
			continue
		}
		failed[c.To.Key()] = true
		problems = append(problems, &Error{Change: c, Err: err})
		if _, ok := c.To.(state.Unit); ok || ctx.Err() != nil {
			return errors.Join(append(problems, errors.New("what was left is unchanged; run unbootstrap again"))...)
		}
	}
	undone := slices.DeleteFunc(e.Journal.Ledger().Keys(), func(k state.Key) bool { return failed[k] })
	return errors.Join(errors.Join(problems...), e.settle(ctx, undone))
}

// remember puts on disk all that the plan needs for its undoing: contents that it replaces first, then the ledger.
func (e *Engine) remember(ctx context.Context, plan state.Plan) error {
	ledger := e.Journal.Ledger()
	for _, c := range plan {
		file, ok := c.From.(state.File)
		if _, known := ledger.Entry(c.To.Key()); !ok || known || c.Undo || state.Equal(c.From, c.To) {
			continue
		}
		if err := e.Journal.Backup(ctx, file); err != nil {
			return err
		}
	}
	return e.Journal.Save(ctx, ledger.Record(plan))
}

// change makes one change and checks that it took.
func (e *Engine) change(ctx context.Context, c state.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.emit(Event{Kind: Changing, Change: c})
	err := e.touch(ctx, c)
	e.emit(Event{Kind: Changed, Change: c, Err: err})
	return err
}

func (e *Engine) touch(ctx context.Context, c state.Change) error {
	if e.Wait != nil {
		if err := e.Wait(ctx, c.To); err != nil {
			return err
		}
	}
	unit, isUnit := c.To.(state.Unit)
	if isUnit { // what a service reads must be on disk before it starts
		if err := errors.Join(e.Host.Flush(), e.reload(ctx)); err != nil {
			return err
		}
	}
	if err := e.Host.Set(ctx, c, e.Journal.Content); err != nil {
		return err
	}
	if !c.Undo {
		if err := e.check(ctx, c.To); err != nil {
			return err
		}
	}
	if isUnit {
		return e.pay(ctx, unit.Name)
	}
	return nil
}

// check makes sure that a change took: that the host now is what was wanted.
func (e *Engine) check(ctx context.Context, to state.Resource) error {
	if _, ok := to.(state.Residue); ok {
		return nil
	}
	is, err := e.Host.Observe(ctx, to.Key())
	if err != nil {
		return err
	}
	if !state.Equal(is, to) {
		return fmt.Errorf("cannot %s: afterwards it is %s", state.Describe(state.Change{To: to}), state.Show(is))
	}
	return nil
}

// reload pays systemd its reload, if one is owed.
func (e *Engine) reload(ctx context.Context) error {
	if !e.Journal.Ledger().Owes(state.DaemonReload) {
		return nil
	}
	if err := e.Host.Reload(ctx); err != nil {
		return err
	}
	return e.pay(ctx, state.DaemonReload)
}

func (e *Engine) pay(ctx context.Context, unit string) error {
	ledger := e.Journal.Ledger()
	if !ledger.Owes(unit) {
		return nil
	}
	return e.Journal.Save(ctx, ledger.Paid(unit))
}

// settle ends a run: all is on disk, systemd's reload is paid and what is as it was before us is forgotten.
func (e *Engine) settle(ctx context.Context, undone []state.Key) error {
	if err := errors.Join(e.Host.Flush(), e.reload(ctx)); err != nil {
		return err
	}
	if len(undone) == 0 {
		return nil
	}
	return e.Journal.Save(ctx, e.Journal.Ledger().Forget(undone...))
}

func (e *Engine) emit(event Event) {
	if e.Emit != nil {
		e.Emit(event)
	}
}
