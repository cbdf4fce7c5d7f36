package flexnode

import (
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Diff returns what differs between two configurations, ordered by path, and what an agent does to
// the pods of the node for it. Paths are as those of the agent's messages: node.maxPods,
// node.labels["a.b/c"]. A list is one value.
func Diff(from, to map[string]any) api.Diff {
	diff := api.Diff{Disruption: config.DisruptsNothing, Changes: []api.Change{}}
	for _, d := range config.Differences(from, to) {
		one := config.DisruptionOf(d, to)
		if one == config.Drain || diff.Disruption == config.DisruptsNothing {
			diff.Disruption = one
		}
		diff.Changes = append(diff.Changes,
			api.Change{Path: d.Path, From: d.From, To: d.To, Disruption: one})
	}
	return diff
}
