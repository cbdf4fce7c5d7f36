package transition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Step carries out one phase. It may record in t what later phases need.
type Step func(ctx context.Context, t *Transition) error

// Runner carries out transitions.
type Runner struct {
	Steps map[Phase]Step
	// Save stores a transition; Clear removes it.
	Save  func(ctx context.Context, t Transition) error
	Clear func(ctx context.Context) error
	// Reject records that a transition's generation failed, so that it is not tried again.
	Reject func(ctx context.Context, t Transition, cause error) error
	// Release undoes what a transition did before its machine was touched: the cordon.
	Release func(ctx context.Context, t Transition) error
	Now     func() time.Time
}

// Run carries out t from its phase on, up to until, "" for all. It rolls back a change that fails
// after the machine was touched. If ctx ends, the record remains for the next Run.
func (r Runner) Run(ctx context.Context, t Transition, until Phase) error {
	if len(Phases(t.Kind)) == 0 {
		return fmt.Errorf("internal error: a transition of the unknown kind %q", t.Kind)
	}
	t.Attempt++
	done, err := r.forward(ctx, &t, until)
	switch {
	case done:
		return r.Clear(ctx)
	case err == nil || Interrupted(ctx, err):
		return err
	}
	return r.failed(ctx, t, err)
}

// Interrupted reports whether a phase ended without failing: the record stays for the next run.
func Interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrSuperseded) || errors.Is(err, ErrUndecided)
}

// forward carries out the remaining phases, and reports whether all are done. If it begins in the
// gate, it first repeats the previous phase: a boot may have changed the machine.
func (r Runner) forward(ctx context.Context, t *Transition, until Phase) (done bool, err error) {
	phases := Phases(t.Kind)
	begin := max(slices.Index(phases, t.Phase), 0)
	for i, phase := range phases[begin:] {
		t.Phase = phase
		t.Touched = t.Touched || t.Kind == Change && phase == Apply
		if err := r.Save(ctx, *t); err != nil || phase == until {
			return false, err
		}
		if i == 0 && phase == Gate {
			if err := r.Steps[phases[begin-1]](ctx, t); err != nil {
				return false, err
			}
		}
		if err := r.Steps[phase](ctx, t); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r Runner) failed(ctx context.Context, t Transition, cause error) error {
	switch {
	case !t.Touched && (t.Kind == Change || t.Kind == Repair):
		var rejecting error
		if t.Kind == Change && Of(cause).Kind == Refused {
			rejecting = r.Reject(ctx, t, cause)
		}
		ending := r.Release(ctx, t)
		if ending == nil { // else the record remains until all is undone
			ending = r.Clear(ctx)
		}
		return errors.Join(cause, rejecting, ending)
	case t.Kind == Change && t.Phase != Commit:
		return r.rollBack(ctx, t, cause)
	case t.Kind == Rollback:
		return fmt.Errorf("%s\nand cannot go back to the previous configuration: %w", t.Cause, cause)
	}
	return cause // the next run continues it
}

// rollBack rejects the failed generation and goes back, which is recorded first. It does not reject
// one that was never applied, as its download failed, its pods did not drain, or a disk failed.
func (r Runner) rollBack(ctx context.Context, t Transition, cause error) error {
	back := t.Back(cause, r.Now())
	back.Attempt = 1
	ofDisk := slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO},
		func(fault error) bool { return errors.Is(cause, fault) })
	rejected := Of(cause).Kind == Refused || (t.Phase == Apply || t.Phase == Gate) && !ofDisk
	if rejected {
		if err := r.Reject(ctx, t, cause); err != nil {
			return errors.Join(cause, err)
		}
	}
	if err := r.Save(ctx, back); err != nil {
		return errors.Join(cause, err)
	}
	_, err := r.forward(ctx, &back, "")
	if err != nil && Interrupted(ctx, err) {
		return fmt.Errorf("%w\nthe rollback is under way; the next run continues it: %w", cause, err)
	}
	if err != nil {
		return fmt.Errorf("%w\nand cannot go back to the previous configuration: %w", cause, err)
	}
	if err := r.Clear(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if !rejected {
		return fmt.Errorf("%w\nthe machine is again what was applied", cause)
	}
	const form = "%w\nthe previous configuration is back and the Node is as healthy as it was"
	return &Outcome{Kind: RolledBack, Err: fmt.Errorf(form, cause)}
}
