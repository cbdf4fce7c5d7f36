package health

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func TestServicesReachable(t *testing.T) {
	silent := func(pods ...corev1.Pod) Evidence {
		return with(func(e *Evidence) {
			e.Pods = Answered(pods, nil)
			e.Services.Value.Tried = []kube.Connection{
				{Service: "default/kubernetes", Address: "10.96.0.1:443"},
				{Service: "DNS", Address: "10.96.0.10:53", Err: errors.New("i/o timeout")},
			}
		})
	}
	told := func(address string) Evidence {
		return with(func(e *Evidence) { e.Wanted.Node.Kubelet.DNSServiceIP = address })
	}
	check(t, "ServicesReachable", []expect{
		blank("NotChecked"),
		{"no proxy", silent(pod("web", time.Hour, true)), False, "ProxyMissing", OwnerCluster,
			"docs/how-to/prepare-a-cluster.md"},
		{"a proxy", silent(pod("kube-proxy-x7", time.Hour, true)), False, "NotReachable",
			OwnerNetwork, "DNS (10.96.0.10:53: i/o timeout)"},
		{"the one of kube-proxy.yaml", silent(pod("aks-flex-node-kube-proxy-x7", time.Hour, true)), False,
			"NotReachable", OwnerNetwork, "whether the network has routes"},
		{"its rules are gone", silent(pod("kube-proxy-x7", time.Hour, true)), False, "NotReachable",
			OwnerNetwork, "`pkill -x kube-proxy`"},
		{"a network that is one", silent(pod("cilium-2", time.Hour, true)), False, "NotReachable",
			OwnerNetwork, "firewall"},
		{"another DNS", told("10.0.0.10"), False, "DNSAddressDiffers", OwnerConfiguration,
			"is 10.96.0.10: set node.kubelet.dnsServiceIP"},
		{"a cache on each node", told("169.254.20.10"), True, "", "", ""},
		{"forbidden", with(func(e *Evidence) { e.Services = Answered(kube.Services{}, unavailable()) }),
			Unknown, "NotAnswered", "", "etcd is down"},
	})
}
