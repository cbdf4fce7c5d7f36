package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// What kubelet reads only when it registers the Node is in a file of its own, whose change restarts
// nothing.
func TestLabelsAndTaintsRestartNothing(t *testing.T) {
	c, f := base(), facts()
	old := Render(c, f)
	c.Node.Labels = map[string]string{
		"example.com/site": "south", "example.com/rack": "7", "kubernetes.azure.com/managed": "false",
	}
	c.Node.Taints = []string{"dedicated=edge:NoSchedule", "slow:PreferNoSchedule"}
	var changed []state.Item
	for i, item := range Render(c, f) {
		if !state.Equal(item.Resource, old[i].Resource) {
			changed = append(changed, item)
		}
	}
	if len(changed) != 1 || len(changed[0].Owes) > 0 {
		t.Fatalf("changed are %+v, want one file that owes nothing", changed)
	}
	file := changed[0].Resource.(state.File)
	want := `KUBELET_REGISTRATION_ARGS="--node-labels=` +
		`example.com/rack=7,example.com/site=south,kubernetes.azure.com/managed=false` +
		` --register-with-taints=dedicated=edge:NoSchedule,slow:PreferNoSchedule"` + "\n"
	if file.Path != "/etc/kubernetes/aks-flex-node-registration.env" || file.Mode != 0o644 ||
		!strings.HasSuffix(file.Content, want) {
		t.Errorf("%s of mode %04o is\n%s", file.Path, file.Mode, file.Content)
	}
}

// The unit reads that file before the operator's, which wins, and has its arguments before theirs.
func TestUnitReadsRegistration(t *testing.T) {
	unit := find(t, everything(), state.PathKey(unitDir+"/"+KubeletUnit)).Resource.(state.File)
	for _, want := range []string{
		"EnvironmentFile=/etc/kubernetes/aks-flex-node-registration.env\n" +
			"EnvironmentFile=-/etc/default/kubelet\n",
		"  $KUBELET_REGISTRATION_ARGS \\\n  $KUBELET_EXTRA_ARGS\n",
	} {
		if !strings.Contains(unit.Content, want) {
			t.Errorf("the unit lacks %q:\n%s", want, unit.Content)
		}
	}
}

func TestNodeObject(t *testing.T) {
	c, b := base(), bindings()
	b.PodCIDRs = []string{"10.244.3.0/24"}
	labels := map[string]string{"example.com/site": "north", "example.com/zone": "a"}
	c.Node.Labels = labels
	item := func(r state.Resource) state.Item {
		return state.Item{Step: state.Start, Resource: r, Needs: Credential}
	}
	want := state.Desired{
		item(state.Registration{
			Node: "edge-1", Exists: true, PodCIDRs: []string{"10.244.3.0/24"}, Labels: labels,
		}),
		item(state.Label{Name: "example.com/site", Value: "north", Set: true}),
		item(state.Label{Name: "example.com/zone", Value: "a", Set: true}),
	}
	for _, kubelets := range []string{"kubernetes.io/hostname", "kubernetes.io/os",
		"kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"} {
		spared := item(state.Label{Name: kubelets})
		spared.Spared = true
		want = append(want, spared)
	}
	if diff := cmp.Diff(want, NodeObject(c, b)); diff != "" {
		t.Errorf("Node object (-want +got):\n%s", diff)
	}
}
