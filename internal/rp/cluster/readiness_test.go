package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// kubeNode returns a Node as kubelet writes it.
func kubeNode(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"x": "y"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready,
				Reason: "Kubelet", LastTransitionTime: metav1.NewTime(time.Now())}},
			Images: []corev1.ContainerImage{{Names: []string{"an image"}}},
		},
	}
}

// flexNode returns the Node of a flex node that is Ready.
func flexNode(name string) *corev1.Node {
	n := kubeNode(name, corev1.ConditionTrue)
	n.Labels[managedLabel] = "false"
	return n
}

// add adds a Node.
func (c *fakeCluster) add(n *corev1.Node) {
	must(c.CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{}))
	pass(2 * readinessPause)
}

// edit changes a Node like another client.
func (c *fakeCluster) edit(name string, with func(*corev1.Node)) {
	n := must(c.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{}))
	with(n)
	must(c.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
}

func (c *fakeCluster) join(name string, is corev1.ConditionStatus) { c.add(kubeNode(name, is)) }

func (c *fakeCluster) set(name string, ready corev1.ConditionStatus) {
	must(c.CoreV1().Nodes().UpdateStatus(context.Background(), kubeNode(name, ready),
		metav1.UpdateOptions{}))
	pass(2 * readinessPause)
}

func (c *fakeCluster) leave(name string) {
	must(0, c.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
	pass(2 * readinessPause)
}

// Ready follows the Node object, through its deletion and its return. The next owner notices a Node
// that was deleted while the cluster had no owner.
func TestReady(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		const key = factory + "/edge-1"
		w.put(factoryID, "edge-1", flexnode.Desired{})
		w.put(factoryID, "edge-2", flexnode.Desired{})
		check := func(when, status, reason string) {
			t.Helper()
			got := w.ready(key)
			equal(t, when, []string{got.Status, got.Reason}, []string{status, reason})
		}
		check("before it joins", "", "")
		c.join("edge-1", corev1.ConditionTrue)
		c.join("stranger", corev1.ConditionTrue)
		check("joined", "True", "Kubelet")
		c.set("edge-1", corev1.ConditionFalse)
		check("not ready", "False", "Kubelet")
		c.leave("edge-1")
		check("deleted", "Unknown", "NodeNotFound")
		since := w.ready(key).LastTransitionTime
		pass(time.Minute)
		c.join("edge-1", corev1.ConditionTrue)
		check("back", "True", "Kubelet")
		w.disown(factory)
		c.leave("edge-1")
		w.own(factory)
		pass(2 * time.Second)
		check("deleted while the cluster has no owner", "Unknown", "NodeNotFound")
		if !w.ready(key).LastTransitionTime.After(since) {
			t.Error("it is not said when")
		}
		for _, name := range []string{"stranger", "edge-2"} {
			row := must(w.store.Status.Get(context.Background(), factory+"/"+name))
			equal(t, name+": it has a condition", row.Value.Ready != nil, false)
		}
	})
}

// A cluster that does not answer makes all its nodes Unknown within a minute, with one write.
func TestAnUnreachableClusterIsUnknown(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		const nodes = 20
		for i := range nodes {
			w.put(factoryID, fmt.Sprintf("edge-%d", i), flexnode.Desired{})
			c.join(fmt.Sprintf("edge-%d", i), corev1.ConditionTrue)
		}
		pass(time.Minute)
		before := w.memory.Commits()
		c.Down.Store(true)
		pass(healthInterval)
		equal(t, "it is reachable after one answer that is missing",
			w.cluster(factory).Properties.Reachable, true)
		pass(50 * time.Second)
		equal(t, "commits", w.memory.Commits()-before, 1)
		got := w.cluster(factory)
		if got.Properties.Reachable || got.Probe.Since.IsZero() || got.Probe.Unreachable == "" {
			t.Errorf("the cluster: %+v", got)
		}
		status := must(w.store.Status.Get(context.Background(), factory+"/edge-1")).Value
		shown := flexnode.StatusOf(flexnode.Evidence{
			Status: status, Reachable: got.Properties.Reachable, Now: time.Now(),
		})
		equal(t, "the condition that is shown", shown.Conditions[0].Status, "Unknown")
		c.Down.Store(false)
		pass(2 * healthInterval)
		if got := w.cluster(factory); !got.Properties.Reachable || got.Probe.Unreachable != "" {
			t.Errorf("the cluster when it is back: %+v", got)
		}
	})
}

// A deleted node gets no status, and its successor does not inherit one.
func TestADeletedNodeGetsNoStatus(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.put(factoryID, "edge-1", flexnode.Desired{})
		c.join("edge-1", corev1.ConditionTrue)
		w.drop("edge-1")
		c.set("edge-1", corev1.ConditionFalse)
		row := must(w.store.Status.Get(context.Background(), factory+"/edge-1"))
		equal(t, "its status is there", row.Exists(), false)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		pass(time.Second)
		equal(t, "its successor", w.ready(factory+"/edge-1").Status, "False")
	})
}

// Each part of a reduced Node is unchanged, whatever the others are.
func TestPartsOfANode(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 22, 10, 0, 7, 0, time.UTC))
	for _, configured := range []bool{false, true} {
		n := kubeNode("edge-1", corev1.ConditionFalse)
		n.Labels = map[string]string{managedLabel: "false"}
		n.Spec.PodCIDRs = []string{"10.1.0.0/24", "fd00:1::/64"}
		want := "10.1.0.0/24,fd00:1::/64"
		if configured {
			n.Labels[config.PodCIDRLabel], want = "10.2.0.0-24", "10.2.0.0/24"
		}
		n.Spec.Taints = []corev1.Taint{readTaint("a=1:NoSchedule"), readTaint("b:NoExecute")}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
			{Type: corev1.NodeHostName, Address: "edge-1"},
			{Type: corev1.NodeExternalIP, Address: "fd00::7"},
		}
		n.Status.Conditions[0].LastTransitionTime = at
		seen := seeNode(n, "")
		got := []string{seen.name, seen.subnets, seen.addresses, seen.taints.Value()}
		equal(t, "what is seen", got,
			[]string{"edge-1", want, "192.0.2.7,fd00::7", "a=1:NoSchedule,b:NoExecute"})
		if seen.configured != configured || seen.otherByLabels() ||
			!seen.condition().LastTransitionTime.Equal(at.Time) {
			t.Errorf("%#v", seen)
		}
	}
	late := kubeNode("edge-1", corev1.ConditionTrue)
	late.Status.Conditions[0].LastTransitionTime = metav1.Unix(253402383599, 0) // the year 10000
	if _, err := json.Marshal(seeNode(late, "").condition()); err != nil {
		t.Error(err)
	}
	bare := seeNode(&corev1.Node{}, "")
	if c := bare.condition(); c.Status != "Unknown" || !c.LastTransitionTime.IsZero() ||
		!bare.otherByLabels() || bare.name+bare.version != "" || bare.taints.Value() != "" {
		t.Errorf("%#v", bare)
	}
}

// The Nodes of a cluster take little memory of its owner, including their cache.
func TestNodesAreSmall(t *testing.T) {
	const nodes, most = 10_000, 256
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	before := heap()
	for i := range nodes {
		n := kubeNode(fmt.Sprintf("edge-%06d", i), corev1.ConditionTrue)
		n.UID = types.UID(uuid.NewString())
		n.Labels = map[string]string{managedLabel: "false"}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250)}}
		n.Status.Conditions[0].Reason = strings.Clone("KubeletReady")
		must(0, known.Add(seeNode(n, "")))
	}
	bytes := (heap() - before) / nodes
	t.Logf("%d bytes", bytes)
	if bytes > most {
		t.Errorf("a Node takes %d bytes, more than %d", bytes, most)
	}
	runtime.KeepAlive(known)
}
