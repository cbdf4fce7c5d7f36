package cluster

import (
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// seenNode is what is kept of a Node: a tenth of a kilobyte instead of ten.
type seenNode struct {
	name   string
	uid    types.UID
	status corev1.ConditionStatus // of Ready
	reason string
	since  time.Time
	// subnets are its pod subnets, with commas: the one that it was configured with, else those that
	// the cluster has allocated to it.
	subnets    string
	configured bool
	other      bool // it is none of a flex node
	// addresses are its own, taints those that it has, each with commas.
	addresses, taints string
}

// managedLabel is "false" of every Node that the agent has joined, and of none that AKS has.
const managedLabel = "kubernetes.azure.com/managed"

// GetObjectMeta implements metav1.ObjectMetaAccessor, by which caches know it.
func (n *seenNode) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: n.name, UID: n.uid}
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
	seen := &seenNode{name: node.Name, uid: node.UID, status: corev1.ConditionUnknown,
		other: node.Labels[managedLabel] != "false"}
	seen.subnets = flexnode.PodCIDROf(node.Labels)
	if seen.configured = seen.subnets != ""; !seen.configured {
		seen.subnets = strings.Join(node.Spec.PodCIDRs, ",")
	}
	var addresses []string
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	seen.addresses = strings.Join(addresses, ",")
	var taints []string
	for _, t := range node.Spec.Taints {
		taints = append(taints, writeTaint(t))
	}
	seen.taints = unique.Make(strings.Join(taints, ",")).Value() // many Nodes have the same
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			seen.status, seen.reason, seen.since = c.Status, c.Reason, c.LastTransitionTime.UTC()
		}
	}
	return seen, nil
}
