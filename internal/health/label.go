package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func labelsApplied(e Evidence) Condition {
	if !e.Node.OK() {
		return e.Node.missing()
	}
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(e.Wanted.Labels)) {
		if is, ok := e.Node.Value.Labels[key]; !ok || is != e.Wanted.Labels[key] {
			differ = append(differ, key+"="+e.Wanted.Labels[key])
		}
	}
	if len(differ) > 0 {
		return fails(OwnerMachine, "LabelsDiffer", "the Node lacks labels of the configuration: "+
			strings.Join(differ, ", ")+"; run `aks-flex-node drift --repair`")
	}
	return holds()
}

// taintsApplied: a node may give itself taints when it registers, and never again.
func taintsApplied(e Evidence) Condition {
	if !e.Node.OK() {
		return e.Node.missing()
	}
	var lacking []string
	for _, text := range e.Wanted.Taints {
		wanted, err := kube.ParseTaint(text)
		if err != nil {
			return unknown("InvalidTaint", err.Error())
		}
		if !slices.ContainsFunc(e.Node.Value.Spec.Taints, func(is corev1.Taint) bool {
			return is.MatchTaint(&wanted) && is.Value == wanted.Value
		}) {
			lacking = append(lacking, text)
		}
	}
	if len(lacking) > 0 {
		return fails(OwnerCluster, "TaintsDiffer", fmt.Sprintf("the Node lacks taints of the "+
			"configuration, and a node may not change its own; the cluster's operator can run "+
			"`kubectl taint node %s %s --overwrite`", e.Wanted.Node, strings.Join(lacking, " ")))
	}
	return holds()
}
