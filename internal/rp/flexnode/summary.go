package flexnode

import (
	"cmp"
	"iter"
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// maxSummarized limits the versions and conditions in a summary, which agents report, to the most
// frequent.
const maxSummarized = 200

// Summary counts nodes by their classes.
func Summary(classes iter.Seq[*Class]) api.Summary {
	s := api.Summary{
		States: []api.StateCount{}, Versions: []api.VersionCount{}, Conditions: []api.ConditionCount{},
	}
	counted, provisioning := map[string]int{}, map[string]int{}
	versions, conditions := map[api.VersionCount]*api.VersionCount{}, map[api.ConditionCount]int{}
	version := func(component, version string) *api.VersionCount {
		v := api.VersionCount{Component: component, Version: version}
		if versions[v] == nil {
			versions[v] = &v
		}
		return versions[v]
	}
	for class := range classes {
		s.Nodes++
		provisioning[class.State]++
		for _, state := range class.States {
			counted[state]++
		}
		for _, c := range class.Conditions {
			conditions[api.ConditionCount{Type: c.Type, Status: c.Status, Reason: c.Reason}]++
		}
		for component, v := range wantedVersions(class.Versions) {
			version(component, v).Wanted++
		}
		for component, v := range runningVersions(class.Components) {
			version(component, v).Running++
		}
	}
	for _, state := range states {
		s.States = append(s.States, api.StateCount{State: state.name, Nodes: counted[state.name]})
	}
	for _, state := range []string{api.Succeeded, api.Creating, api.Updating, api.Failed} {
		s.ProvisioningStates = append(s.ProvisioningStates,
			api.StateCount{State: state, Nodes: provisioning[state]})
	}
	for _, v := range versions {
		if v.Version != "" {
			s.Versions = append(s.Versions, *v)
		}
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

func wantedVersions(v Versions) map[string]string {
	return map[string]string{
		"kubernetes": v.Kubernetes, "containerd": v.Containerd, "runc": v.Runc, "cni": v.CNI,
		"npd": v.NPD,
	}
}

// runningVersions returns the versions that an agent reports, by component.
func runningVersions(c api.Components) map[string]string {
	return map[string]string{
		"kubernetes": c.Kubelet, "containerd": c.Containerd, "runc": c.Runc, "cni": c.CNI,
		"npd": c.NPD, "agent": c.Agent, "kernel": c.Kernel, "os": c.OS,
	}
}

// states has those by which nodes are counted. A node is in several of them.
var states = []struct {
	name string
	has  func(c *Class, n Node) bool
}{
	{"joined", func(c *Class, _ Node) bool { return c.is(Joined, "True") }},
	{"notJoined", func(c *Class, _ Node) bool { return !c.is(Joined, "True") }},
	{"ready", func(c *Class, _ Node) bool { return c.is(Ready, "True") }},
	{"notReady", func(c *Class, _ Node) bool {
		return find(c.Conditions, Ready) != nil && !c.is(Ready, "True")
	}},
	{"upToDate", func(c *Class, _ Node) bool { return c.is(UpToDate, "True") }},
	{"outdated", func(c *Class, _ Node) bool { return c.is(UpToDate, "False") }},
	{"failed", func(c *Class, _ Node) bool {
		return c.State == api.Failed || c.find(UpToDate).Reason == "Failed"
	}},
	{"heldBack", func(_ *Class, n Node) bool { return n.Assigned != n.Revision }},
	{"reporting", func(c *Class, _ Node) bool { return c.is(Reporting, "True") }},
	{"notReporting", func(c *Class, _ Node) bool { return c.is(Reporting, "False") }},
	{"drifted", func(c *Class, _ Node) bool { return c.drifted }},
}

// Class holds the properties by which a node is counted and chosen.
type Class struct {
	// State is the provisioningState.
	State  string
	States []string
	// Conditions holds the node's conditions as in a list, without times and messages.
	Conditions []api.Condition
	Versions   Versions       // desired
	Components api.Components // running, as the agent reported
	drifted    bool
}

// ClassOf returns the class of a node that is shown.
func ClassOf(n Node, shown api.Properties) *Class {
	is := cmp.Or(shown.Status, &api.Status{})
	class := &Class{
		State: shown.ProvisioningState, Versions: n.Chosen.Versions,
		Components: *cmp.Or(is.Components, &api.Components{}),
		drifted:    is.Drift != nil && is.Drift.Count > 0,
	}
	for _, c := range is.Conditions {
		class.Conditions = append(class.Conditions,
			api.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
	}
	for _, state := range states {
		if state.has(class, n) {
			class.States = append(class.States, state.name)
		}
	}
	return class
}

// find returns a condition; the zero one if the class has none of that type.
func (c *Class) find(kind string) api.Condition {
	return *cmp.Or(find(c.Conditions, kind), &api.Condition{})
}

func (c *Class) is(kind, status string) bool { return c.find(kind).Status == status }

// find returns the condition of a type; nil for none.
func find(all []api.Condition, kind string) *api.Condition {
	if i := slices.IndexFunc(all, func(c api.Condition) bool { return c.Type == kind }); i >= 0 {
		return &all[i]
	}
	return nil
}
