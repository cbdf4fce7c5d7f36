package artifact

import (
	"context"
	"strings"
)

// Download is a Run of a Fetcher, under way. The methods of a nil one do nothing.
type Download struct {
	fetcher *Fetcher
	stop    context.CancelFunc
	ended   chan struct{}
}

// Start begins to fetch the artifacts. Errors are for those who wait for one.
func (f *Fetcher) Start(ctx context.Context) *Download {
	ctx, stop := context.WithCancel(ctx)
	d := &Download{fetcher: f, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		_ = f.Run(ctx)
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

// WaitFor blocks until the artifact is in the store to which target, a path below the directory
// store, belongs. Another path is not waited for.
func (d *Download) WaitFor(ctx context.Context, store, target string) error {
	if d == nil {
		return nil
	}
	for _, a := range d.fetcher.Artifacts {
		if strings.HasPrefix(target, store+"/"+a.ID+"/") {
			return d.fetcher.Wait(ctx, a.ID)
		}
	}
	return nil
}

// WaitAll blocks until every artifact is in the store.
func (d *Download) WaitAll(ctx context.Context) error {
	for _, a := range d.fetcher.Artifacts {
		if err := d.fetcher.Wait(ctx, a.ID); err != nil {
			return err
		}
	}
	return nil
}
