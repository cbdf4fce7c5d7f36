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

// trial is the search for one place that gives one file.
type trial struct {
	policy Policy
	places []candidate
	pauses wait.Backoff
	since  time.Time
}

// try asks the candidates in order and again, until one succeeds, none is worth another try, or the
// budget is spent. do reports whether it came further than any attempt before it. The error is a
// *Failure with the last error of each place, or the context's. retrying hears of every failure
// that is not the end.
func (p Policy) try(
	ctx context.Context, a Artifact, list []candidate,
	do func(ctx context.Context, c candidate) (gained bool, err error),
	retrying func(*Error, time.Duration),
) error {
	p = p.filled()
	pauses := wait.Backoff{Base: p.Backoff, Max: p.MaxBackoff}
	t := trial{policy: p, places: list, pauses: pauses, since: time.Now()}
	for i := 0; ; {
		gained, err := do(ctx, list[i])
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cannot get %s: %w", a, ctx.Err())
		}
		e := list[i].fail(a, err)
		if e.Local() {
			return &Failure{Last: []*Error{e}}
		}
		next, pause := t.next(i, e, gained)
		if next < 0 {
			return &Failure{Last: t.last()}
		}
		retrying(e, pause)
		if !wait.Sleep(ctx, pause) {
			return fmt.Errorf("cannot get %s: %w", a, ctx.Err())
		}
		i = next
	}
}

// fail notes an attempt's error with the names that belong to it.
func (c *candidate) fail(a Artifact, err error) *Error {
	e := Error{Cause: Status, Err: err}
	if known, ok := errors.AsType[*Error](err); ok {
		e = *known
	}
	e.Name, e.Version, e.URL = a.Name, a.Version, c.String()
	c.last = &e
	return &e
}

// next judges the place that just failed and chooses the one to ask now, and after which pause; -1
// means to give up. A place whose connection was cut while bytes came is asked again first: it has
// the file.
func (t *trial) next(i int, e *Error, gained bool) (int, time.Duration) {
	c := &t.places[i]
	if gained {
		t.since = time.Now()
		t.pauses.Reset()
		for j := range t.places {
			t.places[j].strikes = 0
		}
	}
	if !e.mixed {
		c.strikes++
	}
	tries := max(treatments()[e.Cause].tries, 1)
	c.dead = c.strikes >= min(tries, t.policy.Tries) || (c.zst && e.Cause == Digest)
	if time.Since(t.since) > t.policy.Budget {
		return -1, 0
	}
	if !c.dead && (e.mixed || gained && e.Cause == Cut) {
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
	for _, c := range t.places {
		k, known := at[c.via]
		switch {
		case c.last == nil:
		case !known:
			at[c.via] = len(list)
			list = append(list, c.last)
		case !c.zst:
			list[k] = c.last
		}
	}
	return list
}
