package flexnode

import (
	"cmp"
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// maxSummarized limits the versions and conditions in a summary, which agents report, to the most
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

// most returns the most frequent ones, sorted by name.
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

// versionCounts returns the pairs of component and version that have a version.
func versionCounts(pairs ...string) (all []api.VersionCount) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			all = append(all, api.VersionCount{Component: pair[0], Version: pair[1]})
		}
	}
	return all
}

func wantedVersions(v api.Versions) []api.VersionCount {
	return versionCounts("kubernetes", v.Kubernetes, "containerd", v.Containerd, "runc", v.Runc,
		"cni", v.CNI, "npd", v.NPD)
}

func runningVersions(c api.Components) []api.VersionCount {
	return versionCounts("kubernetes", c.Kubelet, "containerd", c.Containerd, "runc", c.Runc,
		"cni", c.CNI, "npd", c.NPD, "agent", c.Agent, "kernel", c.Kernel, "os", c.OS)
}
