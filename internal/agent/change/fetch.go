package change

import (
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

func fetcher(
	h *Home, c config.Config, arts []artifact.Artifact, heal []string,
) *artifact.Fetcher {
	return &artifact.Fetcher{
		Store: h.Path(node.StoreDir), Artifacts: arts,
		Source: source(h, c),
		Heal:   heal,
		Events: func(e artifact.Event) { downloads(h.Agent, e) },
		Touch:  h.Agent.Machine.Touched,
	}
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
		a.Emit(progress.Event{Kind: progress.Fetched, Name: name, Total: e.Artifact.Size, Took: e.Took})
	}
}
