package flexnode

import (
	"cmp"
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// maxSummarized bounds the versions and conditions of a summary, which agents say: the most
// frequent.
const maxSummarized = 200

// Summary counts nodes.
func Summary(counts map[*Class]int) api.Summary {
	s := api.Summary{
		States: []api.StateCount{}, Versions: []api.VersionCount{},
		Conditions: []api.ConditionCount{},
	}
	states, provisioning := map[string]int{}, map[string]int{}
	versions, conditions := map[api.VersionCount]int{}, map[api.ConditionCount]int{}
	running := map[api.VersionCount]int{}
	for class, n := range counts {
		s.Nodes += n
		provisioning[class.State] += n
		for _, state := range class.States {
			states[state] += n
		}
		for _, c := range class.Conditions {
			conditions[api.ConditionCount{Type: c.Type, Status: c.Status, Reason: c.Reason}] += n
		}
		for _, v := range wantedVersions(class.Versions) {
			versions[v] += n
			running[v] += 0
		}
		for _, v := range runningVersions(class.Components) {
			versions[v] += 0
			running[v] += n
		}
	}
	for _, state := range States {
		s.States = append(s.States, api.StateCount{State: state, Nodes: states[state]})
	}
	for _, state := range []string{api.Succeeded, api.Creating, api.Updating, api.Failed} {
		s.ProvisioningStates = append(s.ProvisioningStates,
			api.StateCount{State: state, Nodes: provisioning[state]})
	}
	for v, n := range versions {
		v.Wanted, v.Running = n, running[v]
		s.Versions = append(s.Versions, v)
	}
	for c, n := range conditions {
		c.Nodes = n
		s.Conditions = append(s.Conditions, c)
	}
	s.Versions = most(s.Versions, func(v api.VersionCount) (int, string) {
		return max(v.Wanted, v.Running), v.Component + " " + v.Version
	})
	s.Conditions = most(s.Conditions, func(c api.ConditionCount) (int, string) {
		return c.Nodes, c.Type + " " + c.Status + " " + c.Reason
	})
	return s
}

// most are the most frequent ones, in the order of their names.
func most[T any](all []T, of func(T) (n int, name string)) []T {
	slices.SortFunc(all, func(a, b T) int {
		x, _ := of(a)
		y, _ := of(b)
		return cmp.Compare(y, x)
	})
	all = all[:min(len(all), maxSummarized)]
	slices.SortFunc(all, func(a, b T) int {
		_, x := of(a)
		_, y := of(b)
		return cmp.Compare(x, y)
	})
	return all
}

// component names one, with its version.
func component(all []api.VersionCount, name, version string) []api.VersionCount {
	if version == "" {
		return all
	}
	return append(all, api.VersionCount{Component: name, Version: version})
}

func wantedVersions(v api.Versions) (all []api.VersionCount) {
	all = component(all, "kubernetes", v.Kubernetes)
	all = component(all, "containerd", v.Containerd)
	all = component(all, "runc", v.Runc)
	all = component(all, "cni", v.CNI)
	return component(all, "npd", v.NPD)
}

func runningVersions(c api.Components) (all []api.VersionCount) {
	all = component(all, "kubernetes", c.Kubelet)
	all = component(all, "containerd", c.Containerd)
	all = component(all, "runc", c.Runc)
	all = component(all, "cni", c.CNI)
	all = component(all, "npd", c.NPD)
	all = component(all, "agent", c.Agent)
	all = component(all, "kernel", c.Kernel)
	return component(all, "os", c.OS)
}
