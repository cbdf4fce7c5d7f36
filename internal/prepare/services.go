package prepare

import (
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

const ourProxy = "aks-flex-node-kube-proxy" // the DaemonSet of kube-proxy.yaml

// flexLabel is a label of every flex node, and of no AKS node.
const flexLabel = "kubernetes.azure.com/managed"

// flexNode holds the labels of flex nodes that DaemonSets select by.
var flexNode = labels.Set{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	flexLabel: "false"}

// services describes the program that implements Services on flex nodes.
type services struct {
	apply bool // set for kube-proxy.yaml; by is any other program, "" for none
	by    string
	old   bool // set if the cluster is too old for kube-proxy.yaml
}

// services decides whether to apply kube-proxy.yaml: not if another program runs on flex nodes, as
// both would write rules for the same Service.
func (f facts) services(choice string) (s services) {
	for _, d := range f.daemonSets.Items {
		if d.Name != ourProxy && lands(d.Spec.Template.Spec) && f.serves(d) {
			s.by = d.Namespace + "/" + d.Name
		}
	}
	s.old = f.version.LessThan(nftProxies)
	s.apply = choice == "yes" || choice == "auto" && s.by == "" && !s.old
	return s
}

// serves reports whether a DaemonSet implements Services on the nodes on which it runs.
func (f facts) serves(d appsv1.DaemonSet) bool {
	pod := d.Spec.Template.Spec
	switch {
	case strings.HasPrefix(d.Name, "kube-proxy"), runs(pod, "kube-proxy"):
		return true
	case d.Name == "cilium":
		return f.cilium != nil && slices.Contains([]string{"true", "strict"},
			f.cilium.Data["kube-proxy-replacement"])
	case d.Name == "kube-router":
		return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--run-service-proxy=true")
		})
	}
	return false
}

func runs(pod corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
		image, _, _ := strings.Cut(path.Base(c.Image), ":")
		return image == name
	})
}

func lands(pod corev1.PodSpec) bool {
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(flexNode) {
		return false
	}
	return pod.Affinity == nil || pod.Affinity.NodeAffinity == nil ||
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		slices.ContainsFunc(pod.Affinity.NodeAffinity.
			RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, matches)
}

// matches reports whether flex nodes match a term. Requirements on fields select single nodes.
func matches(term corev1.NodeSelectorTerm) bool {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists:       selection.Exists,
		corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt:           selection.GreaterThan,
		corev1.NodeSelectorOpLt:           selection.LessThan,
	}
	for _, e := range term.MatchExpressions {
		r, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values)
		if err != nil || !r.Matches(flexNode) {
			return false
		}
	}
	return len(term.MatchExpressions) > 0 && len(term.MatchFields) == 0
}
