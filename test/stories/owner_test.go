package stories

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// The machine-id(5) of a story's machine, and of another one.
const (
	ownID      = "3d1219c7c4c5404aaa1f6d2a48adfda4"
	anothersID = "ffff19c7c4c5404aaa1f6d2a48adffff"
)

// registered adds a Node that the kubelet of some machine has registered.
func (c *cluster) registered(name, machineID string) {
	c.set(func() {
		c.nodes[name] = &corev1.Node{
			TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: machineID}},
		}
	})
}

// refuses checks that a join ends because the Node is another machine's.
func (w *world) refuses() {
	w.t.Helper()
	_, err := w.bootstrap()
	for _, want := range []string{
		"NodeOwned", anothersID, ownID, "agent.nodeName", "kubectl delete node edge-1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			w.t.Errorf("the error is %v; want %q", err, want)
		}
	}
	if w.cluster.node1().Status.NodeInfo.MachineID != anothersID {
		w.t.Error("the Node was taken over")
	}
}

// A Node of that name of another machine is refused before any change; one that this machine has
// left behind is taken over.
func TestNodeOfAnotherMachine(t *testing.T) {
	w, _ := azureWorld(t)
	before, touches := w.tree(), w.touched()
	w.cluster.registered("edge-1", anothersID)
	w.refuses()
	w.same(before)
	if w.touched() != touches {
		t.Error("the machine was touched")
	}
	w.cluster.registered("edge-1", ownID)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if c := w.condition("NodeOwned"); c.Status != health.True {
		t.Errorf("%+v", c)
	}
	w.cluster.set(func() { w.cluster.nodes["edge-1"].Status.NodeInfo.MachineID = anothersID })
	if c := w.condition("NodeOwned"); c.Reason != "AnotherMachine" {
		t.Errorf("another kubelet has the same name: %+v", c)
	}
}

// A machine without a credential before its enrolment with Arc checks once it has one.
func TestNodeOfAnotherMachineWithArc(t *testing.T) {
	for _, credential := range []string{"token", "certificate"} {
		w, _, _ := arcWorld(t, credential)
		w.cluster.registered("edge-1", anothersID)
		w.refuses()
	}
}

// A machine that has been replaced under its name, or is a copy, leaves the other machine's Node
// and pods alone, also if the provider would delete it. One whose resource was deleted tells the
// provider.
func TestLeaveAfterReplacement(t *testing.T) {
	for _, deleted := range []string{"", "u"} {
		w, told := newWorld(t), false
		w.provider = &provider{offer: w.delivery("7", keyed), changed: make(chan struct{}),
			leaves: func() { told = true }}
		if err := w.receive(w.provider.offer); err != nil {
			t.Fatal(err)
		}
		if _, err := w.joinAsDelivered(); err != nil {
			t.Fatal(err)
		}
		w.cluster.set(func() { w.cluster.nodes["edge-1"].Status.NodeInfo.MachineID = anothersID })
		how := change.Leave{Options: transition.Options{DrainTimeout: time.Minute, Deleted: deleted}}
		err := w.run(func(ctx context.Context, a *change.Agent) error {
			_, err := change.Unbootstrap(ctx, a, nil, how)
			return err
		})
		if err != nil || told != (deleted != "") {
			t.Errorf("deleted: %q, the provider was told: %t, %v", deleted, told, err)
		}
		w.cluster.set(func() {
			if n := w.cluster.nodes["edge-1"]; n == nil || n.Spec.Unschedulable {
				t.Errorf("the other machine's Node is deleted or cordoned: %+v", n)
			}
		})
	}
}
