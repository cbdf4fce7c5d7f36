package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fetcher brings artifacts into the store. It serves one Run; while that goes on, others Wait for
// single artifacts. Only one process may fetch into a store at a time.
type Fetcher struct {
	// Store is the absolute path of the store. It must exist.
	Store string
	// Artifacts are what to bring.
	Artifacts []Artifact
	Source    Source
	Policy    Policy
	// Log hears of retries and of what was brought; nil means silence.
	Log *slog.Logger
	// Events, when set, gets the progress; calls do not overlap and must return soon.
	Events func(Event)
	// Heal are ids of entries that are fetched again although they are in the store, because their
	// content is no longer what it was (Damaged). The old entry goes when the new one is there.
	Heal []string
	// Touch is called before each change of the store; it may be nil.
	Touch Touch

	ran     atomic.Bool
	once    sync.Once
	entries []*entry // one for each digest
	// zst tells of each mirror that was asked whether it has zstd variants.
	zst sync.Map

	eventMu sync.Mutex
}

// entry is one artifact on its way; err is valid once done is closed.
type entry struct {
	artifact Artifact
	done     chan struct{}
	err      error
}

// Kind is what an Event tells.
type Kind string

// An artifact's events: Started (for each attempt), Progress, Retrying, and at the end Done or
// Failed.
const (
	Started  Kind = "started"
	Progress Kind = "progress"
	Retrying Kind = "retrying"
	Done     Kind = "done"
	Failed   Kind = "failed"
)

// Event is one piece of news about one artifact.
type Event struct {
	Kind     Kind
	Artifact Artifact
	// Bytes of the file that are here, of Total; Total is 0 when the server does not tell.
	Bytes, Total int64
	// Err is why an attempt or the artifact failed, Pause how long it is until the next attempt.
	Err   error
	Pause time.Duration
	// Took is the time since the artifact's start, for Done and Failed; Cached tells that it was in
	// the store already.
	Took   time.Duration
	Cached bool
}

// Run brings all artifacts into the store and returns when it is done with each: first, at once,
// those that a node needs to be Ready, then the Late ones. The error joins that of every artifact
// that could not be brought, each a *Failure or the context's error.
func (f *Fetcher) Run(ctx context.Context) error {
	if f.ran.Swap(true) {
		return errors.New("internal error: a Fetcher runs once")
	}
	f.Source.HTTP = f.Source.client()
	f.Log = cmp.Or(f.Log, slog.New(slog.DiscardHandler))
	for _, late := range []bool{false, true} {
		var wg sync.WaitGroup
		for _, e := range f.wanted() {
			if e.artifact.Late == late {
				wg.Go(func() { f.bring(ctx, e) })
			}
		}
		wg.Wait()
	}
	var errs []error
	for _, e := range f.wanted() {
		errs = append(errs, e.err)
	}
	return errors.Join(errs...)
}

// Wait returns once the artifact with this id is in the store, or with the reason why it will not
// be. It may be called before Run.
func (f *Fetcher) Wait(ctx context.Context, id string) error {
	i := slices.IndexFunc(f.wanted(), func(e *entry) bool { return e.artifact.ID == id })
	if i < 0 {
		return fmt.Errorf("internal error: artifact %.12s was not asked for", id)
	}
	select {
	case <-f.entries[i].done:
		return f.entries[i].err
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for artifact %.12s: %w", id, ctx.Err())
	}
}

func (f *Fetcher) wanted() []*entry {
	f.once.Do(func() {
		seen := map[string]bool{}
		for _, a := range f.Artifacts {
			if !seen[a.ID] {
				f.entries = append(f.entries, &entry{artifact: a, done: make(chan struct{})})
			}
			seen[a.ID] = true
		}
	})
	return f.entries
}

// bring brings one artifact into the store.
func (f *Fetcher) bring(ctx context.Context, e *entry) {
	defer close(e.done)
	begin, a := time.Now(), e.artifact
	cached := isDigest(a.ID) && present(f.Store, a.ID) && !f.heals(a.ID)
	if !cached {
		e.err = f.fetch(ctx, a)
	}
	ev := Event{Kind: Done, Artifact: a, Err: e.err, Cached: cached, Took: time.Since(begin)}
	if e.err != nil {
		ev.Kind = Failed
	} else if !cached {
		f.Log.Info("artifact fetched", "artifact", a.Name, "version", a.Version, "id", a.ID, "took",
			ev.Took)
	}
	f.event(ev)
}

func (f *Fetcher) fetch(ctx context.Context, a Artifact) error {
	if !isDigest(a.ID) {
		return fmt.Errorf("internal error: %s has no digest", a)
	}
	if info, err := os.Stat(f.Store); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot get %s: there is no artifact store at %s", a, f.Store)
	}
	list, err := f.Source.candidates(a)
	if err != nil {
		return err
	}
	d := &download{f: f, a: a, etags: map[string]string{}}
	err = f.Policy.try(ctx, a, list, d.attempt, func(e *Error, pause time.Duration) {
		f.Log.Warn("download failed, trying on", "artifact", a.Name, "url", e.URL, "cause", e.Cause,
			"error", e, "pause", pause)
		f.event(Event{Kind: Retrying, Artifact: a, Err: e, Pause: pause})
	})
	if err != nil {
		return err
	}
	return d.tidy()
}

func (f *Fetcher) event(e Event) {
	if f.Events == nil {
		return
	}
	f.eventMu.Lock()
	defer f.eventMu.Unlock()
	f.Events(e)
}

// withoutZst reports whether a mirror is known to have no zstd variants.
func (f *Fetcher) withoutZst(mirror string) bool {
	has, known := f.zst.Load(mirror)
	return known && has == false
}

// learnZst remembers from an attempt whether a mirror has zstd variants; a single one proves it.
func (f *Fetcher) learnZst(mirror string, err error) {
	e, failed := errors.AsType[*Error](err)
	switch {
	case !failed:
		f.zst.Store(mirror, true)
	case e.Cause == NotFound:
		f.zst.LoadOrStore(mirror, false)
	}
}
