package flexnode

import (
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Diff is what differs between two configurations, ordered by path. Paths are as those of the
// agent's messages: node.maxPods, node.labels["a.b/c"]. A list is one value.
func Diff(from, to map[string]any) []api.Change {
	changes := []api.Change{}
	for _, d := range config.Differences(from, to) {
		changes = append(changes, api.Change{Path: d.Path, From: d.From, To: d.To})
	}
	return changes
}
