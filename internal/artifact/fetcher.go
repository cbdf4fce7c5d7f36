package artifact

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fetcher brings artifacts into the store. Only one process may fetch into a store at a time.
type Fetcher struct {
	Store     string     // the absolute path of the store. It must exist.
	Artifacts []Artifact // the artifacts to bring, each digest once
	Source    Source
	Policy    Policy
	// Events, when set, gets the progress; calls do not overlap and must return soon.
	Events func(Event)
	// Heal are ids of entries that are fetched again though they are in the store: their content is
	// no longer what it was. The old entry goes when the new one is there.
	Heal  []string
	Touch Touch // called before each change of the store; it may be nil

	eventMu sync.Mutex
}

// Download is a fetch under way. The methods of a nil one do nothing.
type Download struct {
	stop    context.CancelFunc
	entries []*entry
	ended   chan struct{}
}

// entry is one artifact on its way; err is valid once done is closed.
type entry struct {
	artifact Artifact
	done     chan struct{}
	err      error
}

// Kind names the kind of an Event.
type Kind string

// An artifact's events: Progress, Retrying, and Done once it has arrived.
const (
	Progress Kind = "progress"
	Retrying Kind = "retrying"
	Done     Kind = "done"
)

// Event is one piece of news about one artifact.
type Event struct {
	Kind     Kind
	Artifact Artifact
	// Bytes of the file that are here, of Total; Total is 0 when the server does not tell.
	Bytes, Total int64
	// Err is why an attempt failed, Pause how long it is until the next one.
	Err   error
	Pause time.Duration
	Took  time.Duration // the time since the artifact's start, for Done
}

// Start begins to fetch the artifacts: first, at once, those that a node needs to be Ready, then
// the Late ones. An artifact that could not be brought has a *Failure or the context's error.
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

// End stops what is still being fetched and returns when it has stopped.
func (d *Download) End() {
	if d != nil {
		d.stop()
		<-d.ended
	}
}

// Idle returns when nothing is being fetched, or when ctx ends.
func (d *Download) Idle(ctx context.Context) {
	if d == nil {
		return
	}
	select {
	case <-d.ended:
	case <-ctx.Done():
	}
}

// WaitFor returns once the artifact to which target, a path below the directory store, belongs is
// there, or with the reason why it will not be. Another path is not waited for.
func (d *Download) WaitFor(ctx context.Context, store, target string) error {
	if d == nil {
		return nil
	}
	for _, e := range d.entries {
		if strings.HasPrefix(target, store+"/"+e.artifact.ID+"/") {
			return e.wait(ctx)
		}
	}
	return nil
}

// WaitAll returns once every artifact is in the store, or with the first that will not be.
func (d *Download) WaitAll(ctx context.Context) error {
	for _, e := range d.entries {
		if err := e.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) wait(ctx context.Context) error {
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for %s: %w", e.artifact, ctx.Err())
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
		return fmt.Errorf("cannot get %s: there is no artifact store at %s", a, f.Store)
	}
	list, err := f.Source.candidates(a)
	if err != nil {
		return err
	}
	d := &download{f: f, a: a}
	err = f.Policy.try(ctx, a, list, d.attempt, func(e *Error, pause time.Duration) {
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
