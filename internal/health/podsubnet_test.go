package health

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func TestResolverConfigured(t *testing.T) {
	resolvers := func(list []string) Evidence {
		return machine(func(m *Machine) { m.ResolvConf, m.Resolvers = "/etc/resolv.conf", list })
	}
	check(t, "ResolverConfigured", []expect{
		blank("NotChecked"),
		{"none", resolvers([]string{}), False, "NoServers", OwnerMachine, "/etc/resolv.conf has no"},
		{"unreadable", resolvers(nil), Unknown, "NotChecked", "", ""},
	})
	if found := Cautions(resolvers([]string{})); len(found) != 1 {
		t.Errorf("the cautions are %v", found)
	}
	stopped := resolvers([]string{})
	stopped.Kubelet.Value.Active = false
	if first, _ := First(Evaluate(Watch, stopped)); first.Type != KubeletRunning {
		t.Errorf("the first of two is %+v", first)
	}
}

func TestPodSubnetsAgree(t *testing.T) {
	another := func(n *kube.Node) { n.Spec.PodCIDRs = []string{"10.244.9.0/24"} }
	check(t, PodSubnetsAgree, []expect{
		blank("NotChecked"),
		{"no answer", with(func(e *Evidence) { e.Node = failed[kube.Node]() }), Unknown, "NotAnswered",
			"", ""},
		{"another subnet", withNode(another), False, "SubnetsDiffer", OwnerMachine, "10.244.9.0/24"},
		{"none yet", withNode(func(n *kube.Node) { n.Spec.PodCIDRs = nil }),
			Unknown, "NotAllocated", "", "10.244.1.0/24"},
		{"the owner's own", with(func(e *Evidence) {
			e.Wanted.CNI.PodCIDR = "10.0.0.0/24"
			another(&e.Node.Value)
		}), True, "", "", ""},
		{"another's network", with(func(e *Evidence) {
			e.Machine.PodCIDRs = nil
			another(&e.Node.Value)
		}), True, "", "", ""},
	})
}
