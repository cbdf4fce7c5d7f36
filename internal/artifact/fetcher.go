package artifact

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Fetcher fetches artifacts into the store. Only one process may fetch into a store at a time.
type Fetcher struct {
	Store     string     // the absolute path of the store, which must exist
	Artifacts []Artifact // the artifacts to fetch, each digest once
	Source    Source
	// Events, if set, receives the progress; calls do not overlap and must return soon.
	Events func(Event)
	// Heal holds ids of damaged entries, which are replaced once they are fetched again.
	Heal  []string
	Touch Touch // called before each change of the store; may be nil

	eventMu sync.Mutex
}

// Download is a running fetch. The methods of a nil Download do nothing.
type Download struct {
	stop    context.CancelFunc
	entries []*entry
	ended   chan struct{}
}

// entry is one artifact being fetched; err is valid once done is closed.
type entry struct {
	artifact Artifact
	done     chan struct{}
	err      error
}

// Kind names the kind of an Event.
type Kind string

// An artifact's events: Progress, Retrying, and Done once it has arrived.
const Progress, Retrying, Done Kind = "progress", "retrying", "done"

// Event is one event of one artifact.
type Event struct {
	Kind     Kind
	Artifact Artifact
	// Bytes counts the received bytes of Total; Total is 0 if the server does not send it.
	Bytes, Total int64
	// Err is the error of an attempt, Pause the time until the next one.
	Err   error
	Pause time.Duration
	Took  time.Duration // the time since the artifact's start, for Done
}

// Start begins to fetch the artifacts: at once those that a node needs to be Ready, then the Late
// ones. The error of an artifact that cannot be fetched is a *Failure or the context's error.
func (f *Fetcher) Start(ctx context.Context) *Download {
	ctx, stop := context.WithCancel(ctx)
	d := &Download{stop: stop, ended: make(chan struct{})}
	for _, a := range f.Artifacts {
		d.entries = append(d.entries, &entry{artifact: a, done: make(chan struct{})})
	}
	go func() {
		defer close(d.ended)
		for _, late := range []bool{false, true} {
			var wg sync.WaitGroup
			for _, e := range d.entries {
				if e.artifact.Late == late {
					wg.Go(func() {
						defer close(e.done)
						e.err = f.bring(ctx, e.artifact)
					})
				}
			}
			wg.Wait()
		}
	}()
	return d
}

// End stops the remaining fetches and waits until they have stopped.
func (d *Download) End() {
	if d != nil {
		d.stop()
		<-d.ended
	}
}

// Idle waits until nothing is being fetched, or ctx ends.
func (d *Download) Idle(ctx context.Context) {
	if d != nil {
		select {
		case <-d.ended:
		case <-ctx.Done():
		}
	}
}

// WaitFor waits for the artifact of target, a path below store, if it is being fetched.
func (d *Download) WaitFor(ctx context.Context, store, target string) error {
	if d == nil {
		return nil
	}
	for _, e := range d.entries {
		if strings.HasPrefix(target, store+"/"+e.artifact.ID+"/") {
			return e.wait(ctx, nil, nil)
		}
	}
	return nil
}

// WaitAll waits until every artifact is in the store, or returns the first error. At each tick it
// calls do with nil, unless do is nil.
func (d *Download) WaitAll(ctx context.Context, tick <-chan time.Time, do func(error)) error {
	for _, e := range d.entries {
		if err := e.wait(ctx, tick, do); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) wait(ctx context.Context, tick <-chan time.Time, do func(error)) error {
	for {
		select {
		case <-e.done:
			return e.err
		case <-tick:
			if do != nil {
				do(nil)
			}
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %s: %w", e.artifact, ctx.Err())
		}
	}
}

func (f *Fetcher) bring(ctx context.Context, a Artifact) error {
	begin := time.Now()
	if !isDigest(a.ID) {
		return fmt.Errorf("internal error: %s has no digest", a)
	}
	if present(f.Store, a.ID) && !slices.Contains(f.Heal, a.ID) {
		return nil
	}
	if info, err := os.Stat(f.Store); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot get %s: no artifact store found at %s", a, f.Store)
	}
	list, err := f.Source.candidates(a)
	if err != nil {
		return err
	}
	d := &download{f: f, a: a}
	err = try(ctx, a, list, d.attempt, func(e *Error, pause time.Duration) {
		f.event(Event{Kind: Retrying, Artifact: a, Err: e, Pause: pause})
	})
	if err == nil {
		err = d.tidy()
	}
	if err == nil {
		f.event(Event{Kind: Done, Artifact: a, Took: time.Since(begin)})
	}
	return err
}

func (f *Fetcher) event(e Event) {
	if f.Events == nil {
		return
	}
	f.eventMu.Lock()
	defer f.eventMu.Unlock()
	f.Events(e)
}

const (
	// maxTries is the number of consecutive failures of one place, without progress, before it is
	// given up. Some causes count for more: a missing or forbidden file is not requested again.
	maxTries = 8
	budget   = 10 * time.Minute // bounds the time of one artifact without progress
	// backoff is the pause after the first round in which every place failed. It doubles with each
	// round up to maxBackoff, and is spread by half in both directions.
	backoff    = 500 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// try calls do for the candidates in order, repeatedly, until one succeeds, all are given up, or
// the budget is spent. do reports whether it made progress. The error is a *Failure or the
// context's. retrying is called for every failure but the last.
func try(
	ctx context.Context, a Artifact, list []candidate,
	do func(ctx context.Context, c candidate) (gained bool, err error),
	retrying func(*Error, time.Duration),
) error {
	pauses, since := wait.Backoff{Base: backoff, Max: maxBackoff}, time.Now()
	for i := 0; ; {
		fastest, speed := rival(list, i)
		list[i].rival = speed
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
		if gained {
			since = time.Now()
			pauses.Reset()
			for j := range list {
				list[j].strikes = 0
			}
		}
		list[i].strike(e)
		if e.Cause == Slow {
			slow(list, list[i].via, e.rate)
		}
		next, pause := i, wait.Jitter(backoff)
		switch {
		case e.Cause == Slow:
			next, pause = fastest, 0
		// A place whose connection was cut while bytes came is tried again first: it has the file.
		case list[i].dead || !e.mixed && !(gained && e.Cause == Cut):
			if next, pause = following(list, i), 0; next <= i {
				pause = pauses.Next()
			}
		}
		if next < 0 || time.Since(since) > budget {
			return &Failure{Last: last(list)}
		}
		retrying(e, pause)
		if !wait.Sleep(ctx, pause) {
			return fmt.Errorf("cannot get %s: %w", a, ctx.Err())
		}
		i = next
	}
}

func (c *candidate) fail(a Artifact, err error) *Error {
	e := Error{Cause: Status, Err: err}
	if known, ok := errors.AsType[*Error](err); ok {
		e = *known
	}
	e.Name, e.Version, e.URL = a.Name, a.Version, c.String()
	c.last = &e
	return &e
}

func (c *candidate) strike(e *Error) {
	if !e.mixed && e.Cause != Slow {
		c.strikes++
	}
	c.dead = c.strikes >= max(treatments[e.Cause].tries, 1) || c.zst && e.Cause == Digest
}

const untried = math.MaxInt64 // the speed of an untried place

// speed returns the bytes per second that a place may deliver; 0 if it is not known to deliver any.
func (c candidate) speed() int64 {
	switch {
	case c.dead:
		return 0
	case c.last == nil && c.rate == 0:
		return untried
	}
	return c.rate
}

// rival returns the fastest place of another origin than the i-th, and its speed; 0 if none exists.
func rival(list []candidate, i int) (fastest int, speed int64) {
	for k := range list {
		j := (i + k) % len(list)
		if s := list[j].speed(); list[j].via != list[i].via && s > speed {
			fastest, speed = j, s
		}
	}
	return fastest, speed
}

func slow(list []candidate, via string, rate int64) {
	for i := range list {
		if list[i].via == via {
			list[i].rate = rate
		}
	}
}

// following returns the next place after i that is not given up, i itself last; -1 if none is left.
func following(list []candidate, i int) int {
	for k := range list {
		if j := (i + 1 + k) % len(list); !list[j].dead {
			return j
		}
	}
	return -1
}

// last collects one error per origin, preferably that of the plain file.
func last(list []candidate) []*Error {
	var errs []*Error
	at := map[string]int{}
	for _, c := range list {
		k, known := at[c.via]
		switch {
		case c.last == nil:
		case !known:
			at[c.via] = len(errs)
			errs = append(errs, c.last)
		case !c.zst:
			errs[k] = c.last
		}
	}
	return errs
}
