package cluster

import (
	"net/netip"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// seenNode is the reduced form of a Node: a tenth of a kilobyte instead of ten. Values that many
// Nodes share are kept once.
type seenNode struct {
	name, version string // of the object
	// subnets holds its pod subnets, separated by commas: the configured one, else those that the
	// cluster has allocated. addresses holds its own addresses.
	subnets, addresses string
	configured         bool // with its pod subnet
	// foreign reports that it is another installation's, unmanaged that it is no flex node.
	foreign, unmanaged bool
	ready              unique.Handle[api.Condition] // Ready, without its time
	since              int64                        // its time, in Unix seconds; 0 if unknown
	taints             unique.Handle[string]        // separated by commas
}

// otherByLabels reports whether the Node's labels say that it is neither this installation's nor
// that of an agent without a provider.
func (n *seenNode) otherByLabels() bool { return n.foreign || n.unmanaged }

func (n *seenNode) condition() *api.Condition {
	c := n.ready.Value()
	if n.since != 0 {
		c.LastTransitionTime = time.Unix(n.since, 0).UTC()
	}
	return &c
}

// managedLabel is "false" on every Node that the agent has joined, and on none of AKS.
const managedLabel = "kubernetes.azure.com/managed"

// GetObjectMeta implements metav1.ObjectMetaAccessor, for caches.
func (n *seenNode) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: n.name, ResourceVersion: n.version}
}

// GetObjectKind implements runtime.Object.
func (n *seenNode) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (n *seenNode) DeepCopyObject() runtime.Object { return new(*n) }

// The limits of a seenNode. Kubernetes allows one pod subnet of each family. No kubelet's Node has
// as many addresses or taints, or as long a text.
const (
	maxName, maxText                    = 253, 256
	maxSubnets, maxAddresses, maxTaints = 2, 16, 64
)

// isName reports whether Kubernetes can store an object of this name.
func isName(name string) bool {
	return len(name) <= maxName && len(validation.IsDNS1123Subdomain(name)) == 0
}

// cut returns at most the first bytes of a text, as valid UTF-8.
func cut(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// seeNode returns the reduced form of a Node, for an installation of the provider. It leaves out
// values that Kubernetes could not store.
func seeNode(node *corev1.Node, installation string) *seenNode {
	by := node.Labels[installationLabel]
	seen := &seenNode{
		name: cut(node.Name, maxName), version: cut(node.ResourceVersion, maxVersion),
		foreign:   by != "" && by != installation,
		unmanaged: node.Labels[managedLabel] != "false",
		subnets:   flexnode.PodCIDROf(node.Labels),
	}
	if seen.configured = seen.subnets != ""; !seen.configured {
		seen.subnets = joined(node.Spec.PodCIDRs, maxSubnets, func(text string) (string, bool) {
			p, err := netip.ParsePrefix(text)
			return p.String(), err == nil
		})
	}
	seen.addresses = joined(node.Status.Addresses, maxAddresses,
		func(a corev1.NodeAddress) (string, bool) {
			ip, err := netip.ParseAddr(a.Address)
			return ip.String(), err == nil && ip.Zone() == "" &&
				(a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP)
		})
	seen.taints = unique.Make(joined(node.Spec.Taints, maxTaints,
		func(t corev1.Taint) (string, bool) {
			text := writeTaint(t)
			return text, len(text) <= 2*maxText && !strings.Contains(text, ",")
		}))
	ready := api.Condition{Type: flexnode.Ready, Status: "Unknown"}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready.Status, ready.Reason = "Unknown", untrusted.Reason(c.Reason)
			if c.Status == corev1.ConditionTrue || c.Status == corev1.ConditionFalse {
				ready.Status = string(c.Status)
			}
			// encoding/json refuses a year above 9999.
			if at := c.LastTransitionTime.UTC(); !at.IsZero() && at.Year() < 10000 {
				seen.since = at.Unix()
			}
		}
	}
	seen.ready = unique.Make(ready)
	return seen
}

// joined returns the first texts of a list that write returns with true, separated by commas.
func joined[T any](list []T, limit int, write func(T) (string, bool)) string {
	var texts []string
	for _, one := range list {
		if text, ok := write(one); ok && len(texts) < limit {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ",")
}
