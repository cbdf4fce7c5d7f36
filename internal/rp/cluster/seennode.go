package cluster

import (
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// seenNode is what is kept of a Node: a tenth of a kilobyte instead of ten. What many Nodes have
// alike is kept once.
type seenNode struct {
	text                string // name, pod subnets, addresses
	nameEnd, subnetsEnd uint16
	configured          bool // with its pod subnet
	other               bool // it is none of a flex node
	ready               unique.Handle[readyState]
	since               int64 // of the Ready condition, in Unix seconds; 0 is not known
	taintTexts          unique.Handle[string]
}

// readyState is that of a Ready condition.
type readyState struct {
	status corev1.ConditionStatus
	reason string
}

func (n *seenNode) name() string { return n.text[:n.nameEnd] }

// subnets are the pod subnets of the Node, with commas: the one that it was configured with, else
// those that the cluster has allocated to it. addresses are its own, taints those that it has, each
// with commas.
func (n *seenNode) subnets() string   { return n.text[n.nameEnd:n.subnetsEnd] }
func (n *seenNode) addresses() string { return n.text[n.subnetsEnd:] }
func (n *seenNode) taints() string    { return n.taintTexts.Value() }

func (n *seenNode) join(name, subnets, addresses string) {
	n.text = name + subnets + addresses
	n.nameEnd, n.subnetsEnd = uint16(len(name)), uint16(len(name)+len(subnets))
}

// condition is the Ready condition that the Node has.
func (n *seenNode) condition() *api.Condition {
	is := n.ready.Value()
	c := &api.Condition{Type: flexnode.Ready, Status: string(is.status), Reason: is.reason}
	if n.since != 0 {
		c.LastTransitionTime = time.Unix(n.since, 0).UTC()
	}
	return c
}

// managedLabel is "false" of every Node that the agent has joined, and of none that AKS has.
const managedLabel = "kubernetes.azure.com/managed"

// GetObjectMeta implements metav1.ObjectMetaAccessor, by which caches know it.
func (n *seenNode) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: n.name()}
}

// seeNode makes what is kept of a Node (cache.TransformFunc).
func seeNode(o any) (any, error) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		inner, err := seeNode(gone.Obj)
		gone.Obj = inner
		return gone, err
	}
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	seen := &seenNode{other: node.Labels[managedLabel] != "false"}
	subnets := flexnode.PodCIDROf(node.Labels)
	if seen.configured = subnets != ""; !seen.configured {
		subnets = strings.Join(node.Spec.PodCIDRs, ",")
	}
	var addresses, taints []string
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	for _, t := range node.Spec.Taints {
		taints = append(taints, writeTaint(t))
	}
	seen.join(node.Name, subnets, strings.Join(addresses, ","))
	seen.taintTexts = unique.Make(strings.Join(taints, ","))
	ready := readyState{status: corev1.ConditionUnknown}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = readyState{c.Status, c.Reason}
			if !c.LastTransitionTime.IsZero() {
				seen.since = c.LastTransitionTime.Unix()
			}
		}
	}
	seen.ready = unique.Make(ready)
	return seen, nil
}
