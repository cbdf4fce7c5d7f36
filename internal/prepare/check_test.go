package prepare

import (
	"encoding/json"
	"strings"
	"testing"
)

type (
	object = map[string]any
	has    = map[string]string // objects by path
)

const (
	daemonSets = "/apis/apps/v1/namespaces/kube-system/daemonsets/"
	configMaps = "/api/v1/namespaces/kube-system/configmaps/"
	nodes      = "/api/v1/nodes/"
	serviceDNS = "/api/v1/namespaces/kube-system/services/kube-dns"
	sliceDNS   = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns-x"
	konnective = "/apis/apps/v1/namespaces/kube-system/deployments/konnectivity-agent"
)

// daemonSet is a DaemonSet with a pod.
func daemonSet(name, pod string) string {
	return `{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "` + name +
		`", "namespace": "kube-system"}, "spec": {"template": {"spec": ` + pod + `}}}`
}

// aksProxy is as AKS's kube-proxy is: it lands on AKS's own nodes.
const aksProxy = `{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
	{"nodeSelectorTerms": [{"matchExpressions": [
	{"key": "kubernetes.azure.com/cluster", "operator": "Exists"},
	{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}]}}},
	"containers": [{"name": "kube-proxy", "image": "mcr.microsoft.com/oss/kubernetes/kube-proxy:v1"}]}`

const cilium = `{"nodeSelector": {"kubernetes.io/os": "linux"}}`

// What serves Services on flex nodes decides whether kube-proxy.yaml is applied, and the check says
// what does, or who can add it.
func TestServices(t *testing.T) {
	replaces := func(how string) string {
		return `{"kind": "ConfigMap", "metadata": {"name": "cilium-config"},
			"data": {"kube-proxy-replacement": "` + how + `"}}`
	}
	const flex = `{"kind": "Node", "metadata": {"name": "a",
		"labels": {"kubernetes.azure.com/managed": "false"}}}`
	for name, tt := range map[string]struct {
		objects map[string]string
		choice  string
		version string
		apply   bool
		status  string
		message string
	}{
		"AKS": {map[string]string{daemonSets + "kube-proxy": daemonSet("kube-proxy", aksProxy)}, "auto",
			"v1.36.3", true, OK, "kube-proxy.yaml, as"},
		"kubeadm": {map[string]string{daemonSets + "kube-proxy": daemonSet("kube-proxy",
			`{"nodeSelector": {"kubernetes.io/os": "linux"}}`)}, "auto", "v1.36.3", false, OK,
			"kube-system/kube-proxy lands on flex nodes"},
		"Cilium": {map[string]string{daemonSets + "cilium": daemonSet("cilium", cilium),
			configMaps + "cilium-config": replaces("true")}, "auto", "v1.36.3", false, OK, "cilium lands"},
		"Cilium beside kube-proxy": {map[string]string{daemonSets + "cilium": daemonSet("cilium", cilium),
			configMaps + "cilium-config": replaces("false")}, "auto", "v1.36.3", true, OK,
			"kube-proxy.yaml"},
		"two": {map[string]string{daemonSets + "proxy": daemonSet("proxy",
			`{"containers": [{"image": "k8s/kube-proxy:v1"}]}`)}, "yes", "v1.36.3", true, Missing,
			"use --kube-proxy no"},
		"none": {nil, "no", "v1.36.3", false, Missing, "pods cannot resolve names"},
		"old":  {nil, "auto", "v1.32.9", false, Missing, "needs Kubernetes 1.33"},
		"not scheduled": {has{nodes + "a": flex, proxy: `{"kind": "DaemonSet", "metadata": {
			"generation": 2, "name": "aks-flex-node-kube-proxy", "namespace": "kube-system"},
			"status": {"observedGeneration": 1}}`}, "auto", "v1.36.3", true, Missing,
			"not been scheduled yet"},
		"not ready": {map[string]string{nodes + "a": flex, proxy: `{"kind": "DaemonSet", "metadata": {
			"name": "aks-flex-node-kube-proxy", "namespace": "kube-system"},
			"status": {"desiredNumberScheduled": 3, "numberReady": 1, "updatedNumberScheduled": 3}}`},
			"auto", "v1.36.3", true, Missing, "not ready on 2 of 3"},
	} {
		s, c := newServer(t)
		s.Version = tt.version
		for path, text := range tt.objects {
			s.Put(path, text)
		}
		f, err := c.facts(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		decided := f.services(tt.choice)
		got := serviceProxy(f, decided)
		if decided.apply != tt.apply || got.Status != tt.status || got.Status == Missing &&
			got.Who == "" || !strings.Contains(got.Message, tt.message) {
			t.Errorf("%s: %+v, %+v", name, decided, got)
		}
	}
}

// Each check says what is missing and who can add it, or how it will be tested.
func TestChecks(t *testing.T) {
	node := func(name, managed, cidr string) string {
		text, _ := json.Marshal(object{"kind": "Node", "metadata": object{"name": name,
			"labels": object{flexLabel: managed}}, "spec": object{"podCIDRs": []string{cidr}}})
		return string(text)
	}
	dns := `{"kind": "Service", "metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.0.0.10"}}`
	slice := func(ready string) string {
		return `{"kind": "EndpointSlice", "metadata": {"name": "kube-dns-x",
			"labels": {"kubernetes.io/service-name": "kube-dns"}},
			"endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": ` + ready + `}}]}`
	}
	agents := func(ready string) string {
		return `{"kind": "Deployment", "metadata": {"name": "konnectivity-agent"},
			"status": {"readyReplicas": ` + ready + `}}`
	}
	onNodes := func(flag, ready string) has {
		return has{daemonSets + "x": `{"kind": "DaemonSet", "metadata": {"name": "konnectivity-agent",
			"namespace": "kube-system"},
			"spec": {"template": {"spec": {"containers": [{"args": ["` + flag + `"]}]}}},
			"status": {"numberReady": ` + ready + `, "desiredNumberScheduled": 3}}`}
	}
	const identified = "--agent-identifiers=ipv4=$(HOST_IP)"
	const operator, network = clusterOperator, networkOperator
	for name, tt := range map[string]struct {
		check           string
		objects         has
		server, version string
		status, message string
		who             string
	}{
		"loopback": {"APIServer", nil, "https://127.0.0.1:1", "", Missing, "--server", operator},
		"public":   {"APIServer", nil, "https://a.example", "", Untested, "endpoints", network},
		"private":  {"APIServer", nil, "https://10.0.0.1", "", Untested, "VPN", network},
		"new":      {"KubernetesVersion", nil, "", "v1.32.0", OK, "1.32.0", ""},
		"middle":   {"KubernetesVersion", nil, "", "v1.31.0", Missing, "upgrade", operator},
		"old":      {"KubernetesVersion", nil, "", "v1.29.0", Missing, "1.30", operator},
		"no DNS":   {"ClusterDNS", nil, "", "", Missing, "CoreDNS", operator},
		"silent DNS": {"ClusterDNS", has{serviceDNS: dns}, "", "", Missing, "endpoints",
			operator},
		"DNS not ready": {"ClusterDNS", has{serviceDNS: dns, sliceDNS: slice("false")}, "", "",
			Missing, "no ready", operator},
		"DNS": {"ClusterDNS", has{serviceDNS: dns, sliceDNS: slice("true")}, "", "", OK,
			"10.0.0.10, with 1", ""},
		"no node": {"PodSubnets", nil, "", "", Untested, "no nodes yet", nodeOwner},
		"Azure CNI": {"PodSubnets", has{nodes + "a": node("a", "true", "")}, "", "", Untested,
			"cni.podCIDR", nodeOwner},
		"kubenet": {"PodSubnets", has{nodes + "a": node("a", "true", "10.2.0.0/24")}, "", "", OK,
			"allocates", ""},
		"overlap": {"PodSubnets", has{nodes + "a": node("a", "true", "10.2.0.0/24"),
			nodes + "b": node("b", "false", "10.2.0.0/16")}, "", "", Missing,
			"another cni.podCIDR", nodeOwner},
		"routes": {"PodRoutes", has{nodes + "a": node("a", "true", "10.2.0.0/24"),
			nodes + "b": node("b", "false", "10.3.0.0/24")}, "", "", Untested,
			"flex nodes (10.3.0.0/24) and of the other nodes (10.2.0.0/24)", network},
		"tunnel": {"KubeletReachable", has{konnective: agents("1")}, "", "", Untested,
			"nodes of kube-system/konnectivity-agent", network},
		"tunnel of nodes": {"KubeletReachable", onNodes(identified, "3"), "", "", OK,
			"3 of 3 nodes", ""},
		"tunnel of some nodes": {"KubeletReachable", onNodes(identified, "2"), "", "", Missing,
			"2 of 3 nodes", operator},
		"agents of any node": {"KubeletReachable", onNodes("--sync-forever", "3"), "", "", Untested,
			"route to port 10250", network},
		"no tunnel": {"KubeletReachable", has{konnective: agents("0")}, "", "", Missing, "no pod",
			operator},
		"direct": {"KubeletReachable", nil, "", "", Untested,
			"the API server needs a route to port 10250", network},
		"serving": {"ServingCertificates", nil, "", "", OK, "the provider approves", ""},
	} {
		s, c := newServer(t)
		if tt.version != "" {
			s.Version = tt.version
		}
		for path, text := range tt.objects {
			s.Put(path, text)
		}
		o := all
		o.Server = tt.server
		r, err := c.Plan(t.Context(), o, false)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, got := range r.Checks {
			if found = found || got.Name == tt.check; got.Name == tt.check && (got.Status != tt.status ||
				got.Who != tt.who || !strings.Contains(got.Message, tt.message)) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if !found {
			t.Errorf("%s: there is no check %s", name, tt.check)
		}
	}
}

// Of long texts the first line that differs is shown.
func TestDifferences(t *testing.T) {
	got := differences("", object{"a": "one\ntwo\n3", "same": []any{1}, "l": []any{object{"x": 1.0}}},
		object{"a": "one\nTWO\n3", "same": []any{1}, "l": []any{object{"x": 2.0}}, "new": true})
	want := []Field{{"a", "two 3", "TWO 3"}, {"l[0].x", "1", "2"}, {"new", "", "true"}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
