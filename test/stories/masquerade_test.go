package stories

import (
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// The plan of a join tells of the rules by which pods leave the cluster's network, though nobody
// knows the node's own pod subnet yet.
func TestPlanOfMasquerading(t *testing.T) {
	w := newWorld(t)
	w.config = w.configuration(func(c map[string]any) {
		c["cni"] = map[string]any{"nonMasqueradeCIDRs": []string{"10.244.0.0/16"}}
	})
	plan, err := w.agent().Plan(t.Context(), agent.Input{Config: w.config})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(plan.Changes, func(e agent.Entry) bool {
		return e.Key == state.UnitKey("aks-flex-node-masquerade.service")
	}) {
		t.Errorf("planned %+v", plan.Changes)
	}
	result, err := w.bootstrap()
	if err != nil || result.Changes != len(plan.Changes) {
		t.Errorf("%v, planned %d changes and made %d", err, len(plan.Changes), result.Changes)
	}
}
