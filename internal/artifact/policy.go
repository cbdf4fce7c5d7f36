package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Policy says how stubborn downloads are; zero fields take the values given here.
type Policy struct {
	// Tries is how often in a row, without progress, one place may fail before it is given up: 8.
	// Some causes count for more: what is not there or not allowed is not asked for again.
	Tries int
	// Budget is how long one artifact may go without progress: 10 minutes.
	Budget time.Duration
	// Backoff is the pause after the first round in which every place failed; it doubles with each
	// further round up to MaxBackoff and is spread by half in both directions: 500 ms and 30 s.
	Backoff, MaxBackoff time.Duration
}

func (p Policy) filled() Policy {
	return Policy{
		Tries: cmp.Or(p.Tries, 8), Budget: cmp.Or(p.Budget, 10*time.Minute),
		Backoff:    cmp.Or(p.Backoff, 500*time.Millisecond),
		MaxBackoff: cmp.Or(p.MaxBackoff, 30*time.Second),
	}
}

// place is a candidate on trial.
type place struct {
	candidate
	strikes int
	dead    bool
	last    *Error
}

// trial is the search for one place that gives one file.
type trial struct {
	policy Policy
	places []*place
	pauses wait.Backoff
	since  time.Time
}

// attempt tries one place; it reports whether it came further than any attempt before it.
type attempt func(ctx context.Context, c candidate) (gained bool, err error)

// try asks the candidates in order and again, until one succeeds, none is worth another try, or the
// budget is spent. The error is a *Failure with the last error of each place, or the context's.
// retrying hears of every failure that is not the end.
func (p Policy) try(ctx context.Context, a Artifact, list []candidate, do attempt,
	retrying func(*Error, time.Duration)) error {
	p = p.filled()
	t := trial{policy: p, since: time.Now()}
	t.pauses = wait.Backoff{Base: p.Backoff, Max: p.MaxBackoff}
	for _, c := range list {
		t.places = append(t.places, &place{candidate: c})
	}
	for i := 0; ; {
		pl := t.places[i]
		gained, err := do(ctx, pl.candidate)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cannot get %s: %w", a, ctx.Err())
		}
		e := pl.fail(a, err)
		if e.Local() {
			return &Failure{Name: a.Name, Version: a.Version, Last: []*Error{e}}
		}
		next, pause := t.next(i, e, gained)
		if next < 0 {
			return &Failure{Name: a.Name, Version: a.Version, Last: t.last()}
		}
		retrying(e, pause)
		if !wait.Sleep(ctx, pause) {
			return fmt.Errorf("cannot get %s: %w", a, ctx.Err())
		}
		i = next
	}
}

// fail notes an attempt's error with the names that belong to it.
func (pl *place) fail(a Artifact, err error) *Error {
	e := Error{Cause: Status, Err: err}
	if known, ok := errors.AsType[*Error](err); ok {
		e = *known
	}
	e.Name, e.Version, e.URL = a.Name, a.Version, pl.String()
	pl.last = &e
	return &e
}

// next judges the place that just failed and chooses the one to ask now, and after which pause; -1
// means to give up. A place whose connection was cut while bytes came is asked again first: it has
// the file.
func (t *trial) next(i int, e *Error, gained bool) (int, time.Duration) {
	pl := t.places[i]
	if gained {
		t.since = time.Now()
		t.pauses.Reset()
		for _, other := range t.places {
			other.strikes = 0
		}
	}
	if !e.mixed {
		pl.strikes++
	}
	pl.dead = pl.strikes >= e.strikes(t.policy.Tries) || (pl.zst && e.Cause == Digest)
	if time.Since(t.since) > t.policy.Budget {
		return -1, 0
	}
	if !pl.dead && (e.mixed || gained && e.Cause == Cut) {
		return i, wait.Jitter(t.policy.Backoff)
	}
	for j := i + 1; j < len(t.places); j++ {
		if !t.places[j].dead {
			return j, 0
		}
	}
	for j := 0; j <= i; j++ {
		if !t.places[j].dead {
			return j, t.pauses.Next()
		}
	}
	return -1, 0
}

// last collects one error for each origin; the plain file speaks for it before its zstd variant.
func (t *trial) last() []*Error {
	var list []*Error
	at := map[string]int{}
	for _, pl := range t.places {
		if pl.last == nil {
			continue
		}
		k, known := at[pl.via]
		switch {
		case !known:
			at[pl.via] = len(list)
			list = append(list, pl.last)
		case !pl.zst:
			list[k] = pl.last
		}
	}
	return list
}
