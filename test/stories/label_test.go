package stories

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// Labels change on the Node without a restart of kubelet: removed ones leave it, those of others
// and kubelet's own remain.
func TestLabelsChangeWithoutRestart(t *testing.T) {
	w := newWorld(t)
	w.config = w.configuration(nodeSetting("labels",
		map[string]any{"example.com/site": "north", "example.com/rack": "7",
			"kubernetes.io/os": "linux"}))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.set(func() { w.cluster.remove("edge-1") })
	if _, err := w.drift(true); err != nil { // registers it, with the labels
		t.Fatal(err)
	}
	w.cluster.set(func() { w.cluster.nodes["edge-1"].Labels["example.com/team"] = "a controller's" })
	since := w.kubeletSince()
	w.config = w.configuration(nodeSetting("labels",
		map[string]any{"example.com/site": "south", "example.com/floor": "2"}))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if w.kubeletSince() != since {
		t.Error("kubelet was restarted")
	}
	labels := w.cluster.node1().Labels
	for key, want := range map[string]string{
		"example.com/site": "south", "example.com/floor": "2", "example.com/team": "a controller's",
		"kubernetes.azure.com/managed": "false", "kubernetes.io/os": "linux",
	} {
		if labels[key] != want {
			t.Errorf("%s is %q, want %q", key, labels[key], want)
		}
	}
	if value, there := labels["example.com/rack"]; there {
		t.Errorf("example.com/rack is still there: %q", value)
	}
	w.steady("with other labels")
	args := w.read("/etc/kubernetes/aks-flex-node-registration.env")
	if strings.Contains(args, "rack") ||
		!strings.Contains(args, "example.com/floor=2") {
		t.Errorf("a new registration would be with %s", args)
	}
}

// A node may not change its own taints. A difference is reported with the command that the operator
// must run, and is no drift.
func TestTaintsOfAJoinedNode(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	since := w.kubeletSince()
	w.config = w.configuration(nodeSetting("taints", []string{"example.com/gpu=true:NoSchedule"}))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	c := w.condition("TaintsApplied")
	const command = "kubectl taint node edge-1 example.com/gpu=true:NoSchedule --overwrite"
	if c.Status != health.False || !strings.Contains(c.Message, command) {
		t.Errorf("the condition is %+v; want `%s`", c, command)
	}
	if log := w.log.String(); !strings.Contains(log, command) {
		t.Error("bootstrap does not say what the operator has to do")
	}
	if w.kubeletSince() != since {
		t.Error("kubelet was restarted")
	}
	w.steady("with other taints")
}

// bootstrap does what a plan shows, also on the Node object.
func TestPlanOfLabels(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["labels"] = map[string]any{"example.com/floor": "2"}
	})
	plan, err := change.Plan(t.Context(), w.agent(), change.Input{Config: w.config})
	if err != nil {
		t.Fatal(err)
	}
	result, err := w.bootstrap()
	if err != nil || result.Changes != len(plan.Changes) || result.Changes < 3 {
		t.Errorf("%v, planned %+v, and made %d changes", err, plan.Changes, result.Changes)
	}
}
