package change

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// fetch is a download of artifacts, under way.
type fetch struct {
	fetcher *artifact.Fetcher
	stop    context.CancelFunc
	ended   chan struct{}
}

// startFetch begins to download what the store does not have, and what is to be healed. Errors are
// for those who wait for an artifact.
func startFetch(
	ctx context.Context, h *Home, c config.Config, arts []artifact.Artifact, heal []string,
) *fetch {
	ctx, stop := context.WithCancel(ctx)
	f := &fetch{stop: stop, ended: make(chan struct{}), fetcher: &artifact.Fetcher{
		Store:     h.Path(node.StoreDir),
		Artifacts: arts,
		Source:    source(h, c),
		Heal:      heal,
		Log:       h.Log,
		Events:    func(e artifact.Event) { downloads(h.Agent, e) },
		Touch:     h.Agent.Machine.Touched,
	}}
	go func() {
		defer close(f.ended)
		_ = f.fetcher.Run(ctx)
	}()
	return f
}

// end stops what is still being downloaded and returns when it has stopped.
func (f *fetch) end() {
	if f == nil {
		return
	}
	f.stop()
	<-f.ended
}

// idle returns when nothing is being downloaded, or when ctx ends.
func (f *fetch) idle(ctx context.Context) {
	if f == nil {
		return
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
	}
}

// wait blocks until the artifact that a link points into is in the store.
func (f *fetch) wait(ctx context.Context, to state.Resource) error {
	link, ok := to.(state.Link)
	if !ok || f == nil {
		return nil
	}
	for _, a := range f.fetcher.Artifacts {
		if strings.HasPrefix(link.Target, node.StoreDir+"/"+a.ID+"/") {
			return f.fetcher.Wait(ctx, a.ID)
		}
	}
	return nil
}

// all blocks until every artifact is in the store.
func (f *fetch) all(ctx context.Context) error {
	for _, a := range f.fetcher.Artifacts {
		if err := f.fetcher.Wait(ctx, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// downloads translates download events into progress.
func downloads(a *Agent, e artifact.Event) {
	name := e.Artifact.String()
	switch e.Kind {
	case artifact.Progress:
		a.Emit(progress.Event{Kind: progress.Bytes, Name: name, Done: e.Bytes, Total: e.Total})
	case artifact.Retrying:
		text := fmt.Sprintf("%v; trying again", e.Err)
		a.Emit(progress.Event{Kind: progress.Retry, Name: name, Text: text})
	case artifact.Done:
		if !e.Cached {
			a.Emit(progress.Event{Kind: progress.Fetched, Name: name, Total: e.Artifact.Size, Took: e.Took})
		}
	}
}
