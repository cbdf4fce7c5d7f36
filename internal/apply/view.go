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

// Observer is a host that is observed, and not changed.
type Observer interface {
	// Observe returns what is at key; state.Unknown when that cannot be told now.
	Observe(ctx context.Context, key state.Key) (state.Resource, error)
}

// View compares a host with what it is to be, and changes nothing.
type View struct {
	Host   Observer
	Ledger state.Ledger
	// Patience bounds an observation; what was not observed by then is unknown. 0 is no bound.
	Patience time.Duration
}

// Observe returns what is there of all that now names or the ledger remembers. A wanted residue
// counts as not found: to find it may mean to run a program. What cannot be observed is unknown.
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

// written is the observation of what only a newer release can observe.
func written(r state.Opaque) state.Unknown {
	const why = "this release does not know a %s; a newer aks-flex-node wrote it"
	return state.Unknown{Of: r.Key(), Why: fmt.Sprintf(why, r.Kind)}
}

// Plan returns the changes to what now says, and what is unknown; what later wants stays.
func (v View) Plan(
	ctx context.Context, now, later state.Desired,
) (state.Plan, []state.Unknown, error) {
	seen, err := v.Observe(ctx, now, later)
	if err != nil {
		return nil, nil, err
	}
	return state.Diff(now, later, seen, v.Ledger), seen.Unknown(), nil
}

// BlindError lists things that a host failed to observe. It says nothing of all others.
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

// Blind is a BlindError of what this release knows and a host failed to observe; nil if nothing.
func Blind(unknown []state.Unknown) error {
	untried := func(u state.Unknown) bool { return u.Err == nil }
	if failed := slices.DeleteFunc(slices.Clone(unknown), untried); len(failed) > 0 {
		return &BlindError{failed}
	}
	return nil
}
