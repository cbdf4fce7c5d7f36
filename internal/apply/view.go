package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Observer observes a host without changing it.
type Observer interface {
	// Observe returns the resource at key; state.Unknown if it cannot be determined now.
	Observe(ctx context.Context, key state.Key) (state.Resource, error)
}

// View compares a host with its wanted state, and changes nothing.
type View struct {
	Host   Observer
	Ledger state.Ledger
	// Patience bounds an observation; resources not observed by then are unknown. 0 is no bound.
	Patience time.Duration
}

// Observe observes everything in now, later and the ledger. A wanted residue counts as not found:
// finding it may require running a program. What cannot be observed is unknown.
func (v View) Observe(ctx context.Context, now, later state.Desired) (state.Observed, error) {
	seen := make(state.Observed)
	for _, item := range slices.Concat(now, later) {
		switch r := item.Resource.(type) {
		case state.Residue:
			seen[r.Key()] = state.Residue{Kind: r.Kind, Match: r.Match}
		case state.Opaque:
			seen[r.Key()] = written(r)
		}
	}
	for _, entry := range v.Ledger.Entries {
		if r, ok := entry.Before.Resource.(state.Opaque); ok {
			seen[r.Key()] = written(r)
		}
	}
	asking, cancel := ctx, func() {}
	if v.Patience > 0 {
		asking, cancel = context.WithTimeout(ctx, v.Patience)
	}
	defer cancel()
	for _, key := range slices.Concat(now.Keys(), v.Ledger.Keys()) {
		if _, ok := seen[key]; ok {
			continue
		}
		r, err := v.Host.Observe(asking, key)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			r = state.Unknown{Of: key, Why: err.Error(), Err: err}
		}
		seen[key] = r
	}
	return seen, nil
}

// written returns the observation of a resource that only a newer release can observe.
func written(r state.Opaque) state.Unknown {
	const why = "this release does not know a %s; a newer aks-flex-node wrote it"
	return state.Unknown{Of: r.Key(), Why: fmt.Sprintf(why, r.Kind)}
}

// Plan returns the changes to the state in now, and the unknown resources; those in later stay.
func (v View) Plan(
	ctx context.Context, now, later state.Desired,
) (state.Plan, []state.Unknown, error) {
	seen, err := v.Observe(ctx, now, later)
	if err != nil {
		return nil, nil, err
	}
	return state.Diff(now, later, seen, v.Ledger), seen.Unknown(), nil
}

// BlindError lists things that a host failed to observe. Others were observed.
type BlindError struct{ Things []state.Unknown }

func (e *BlindError) Error() string {
	return strings.ReplaceAll(errors.Join(e.Unwrap()...).Error(), "\n", "; ")
}
func (e *BlindError) Unwrap() []error {
	errs := make([]error, len(e.Things))
	for i, u := range e.Things {
		errs[i] = u.Err
	}
	return errs
}

// Blind returns a BlindError for known kinds that a host failed to observe; nil if there are none.
func Blind(unknown []state.Unknown) error {
	untried := func(u state.Unknown) bool { return u.Err == nil }
	if failed := slices.DeleteFunc(slices.Clone(unknown), untried); len(failed) > 0 {
		return &BlindError{failed}
	}
	return nil
}
