package prepare

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The results of a check.
const (
	OK       = "ok"
	Missing  = "missing"
	Untested = "untested" // means that only a flex node can test it; the message explains how
)

// The parties that can add missing parts.
const (
	clusterOperator = "the cluster's operator"
	networkOperator = "who runs the network"
	nodeOwner       = "the owner of the node"
)

// Check is the result of checking one requirement of flex nodes.
type Check struct {
	Name    string `json:"name"`
	Status  string `json:"status"`
	Message string `json:"message"`
	// Who names the party that can add what is missing, or that answers for what is untested.
	Who string `json:"who,omitempty"`
}

func checks(f facts, o Options, s services) []Check {
	return []Check{
		apiServer(f), kubernetesVersion(f, o), clusterDNS(f), serviceProxy(f, s), podSubnets(f),
		podRoutes(f), tunnel(f), servingCertificates(o),
	}
}

func apiServer(f facts) Check {
	const name = "APIServer"
	u, _ := url.Parse(f.server) // in the form of address
	host := u.Hostname()
	ip, _ := netip.ParseAddr(host) // a name is the zero Addr
	if host == "localhost" || ip.IsLoopback() || ip.IsUnspecified() {
		return Check{name, Missing, "machines cannot reach " + f.server + ": set the address that they " +
			"can reach with --server", clusterOperator}
	}
	message := "this computer reaches the API server; whether a machine reaches " + f.server +
		" is tested there, by `aks-flex-node endpoints`"
	if ip.IsPrivate() || strings.Contains(host, ".privatelink.") {
		message += "; the address is private, so machines need a way to its network, such as a VPN " +
			"or ExpressRoute"
	}
	return Check{name, Untested, message, networkOperator}
}

func kubernetesVersion(f facts, o Options) Check {
	const name, cure = "KubernetesVersion", ", which shuts the machines of deleted nodes out" +
		": upgrade the cluster"
	is := plain(f.version)
	switch {
	case o.Provider != "" && f.version.LessThan(confining):
		return Check{name, Missing, is + " is older than " + confining.String() + ", which confines " +
			"the provider to its own Secrets, and than " + revoking.String() + cure, clusterOperator}
	case o.Provider != "" && f.version.LessThan(revoking):
		return Check{name, Missing, is + " is older than " + revoking.String() + cure, clusterOperator}
	}
	return Check{name, OK, is, ""}
}

func clusterDNS(f facts) Check {
	const name = "ClusterDNS"
	ready := 0
	for _, s := range f.endpoints.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready += len(e.Addresses)
			}
		}
	}
	switch {
	case f.dns == nil:
		return Check{name, Missing, "there is no Service kube-system/kube-dns, by which pods resolve " +
			"names: install CoreDNS, or set dnsServiceIP in the cluster's registration", clusterOperator}
	case ready == 0:
		return Check{name, Missing, "the Service kube-system/kube-dns (" + f.dns.Spec.ClusterIP +
			") has no ready endpoints: see the pods of CoreDNS", clusterOperator}
	}
	return Check{name, OK, fmt.Sprintf("kube-system/kube-dns, %s, with %d ready endpoints",
		f.dns.Spec.ClusterIP, ready), ""}
}

func serviceProxy(f facts, s services) Check {
	const name, ours = "Services", "kube-proxy.yaml, as DaemonSet kube-system/" + ourProxy
	switch unready := f.notReady(); {
	case s.apply && s.by != "":
		return Check{name, Missing, s.by + " lands on flex nodes, as kube-proxy.yaml does: two " +
			"programs would write rules for the same Service; use --kube-proxy no", clusterOperator}
	case s.old && (s.apply || s.by == ""):
		return Check{name, Missing, "kube-proxy.yaml needs Kubernetes " + nftProxies.String() +
			", the cluster has " + plain(f.version) + ": upgrade it, or let another kube-proxy land on " +
			"flex nodes", clusterOperator}
	case s.apply && unready != "":
		return Check{name, Missing, ours + ": " + unready, clusterOperator}
	case s.apply:
		return Check{name, OK, ours, ""}
	case s.by != "":
		return Check{name, OK, s.by + " lands on flex nodes", ""}
	}
	return Check{name, Missing, "neither kube-proxy nor a replacement is scheduled on flex nodes: " +
		"pods cannot resolve names or reach Services; use --kube-proxy yes", clusterOperator}
}

// notReady describes how many of the flex nodes lack a ready kube-proxy of ours; "" if none.
func (f facts) notReady() string {
	if !slices.ContainsFunc(f.nodes.Items, isFlex) {
		return ""
	}
	for _, d := range f.daemonSets.Items {
		s := d.Status
		switch {
		case d.Name != ourProxy || d.Namespace != system:
		case s.ObservedGeneration < d.Generation:
			return "it has not been scheduled yet"
		case s.NumberReady < s.DesiredNumberScheduled || s.UpdatedNumberScheduled < s.NumberReady:
			return fmt.Sprintf("its pod is not ready on %d of %d flex nodes",
				s.DesiredNumberScheduled-min(s.NumberReady, s.UpdatedNumberScheduled),
				s.DesiredNumberScheduled)
		}
	}
	return ""
}

// subnets returns the pod subnets of the flex nodes or of the other nodes.
func (f facts) subnets(flex bool) (all []netip.Prefix) {
	for _, n := range f.nodes.Items {
		if isFlex(n) != flex {
			continue
		}
		for _, text := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

func isFlex(n corev1.Node) bool { return n.Labels[flexLabel] == "false" }

func podSubnets(f facts) Check {
	const name = "PodSubnets"
	all := append(f.subnets(false), f.subnets(true)...)
	for i, a := range all {
		if slices.ContainsFunc(all[:i], a.Overlaps) {
			return Check{name, Missing, "two nodes have pods in " + a.String() + ": give one of them " +
				"another cni.podCIDR", nodeOwner}
		}
	}
	switch {
	case len(f.nodes.Items) == 0:
		return Check{name, Untested, "no nodes yet; a flex node without `spec.podCIDR` needs cni.podCIDR",
			nodeOwner}
	case len(all) == 0:
		return Check{name, Untested, "the cluster allocates no pod subnets to nodes: each flex node " +
			"needs its own cni.podCIDR, outside of the cluster's pod network, or podCidr in the " +
			"registration; the join tests it", nodeOwner}
	}
	return Check{name, OK, "the cluster allocates them to nodes", ""}
}

// podRoutes names the routes for pods and who tests them: they cannot be seen from the API server.
func podRoutes(f facts) Check {
	text := func(list []netip.Prefix, none string) string {
		if len(list) == 0 {
			return none
		}
		var words []string
		for _, p := range list[:min(len(list), 4)] {
			words = append(words, p.String())
		}
		if more := len(list) - len(words); more > 0 {
			words = append(words, fmt.Sprintf("%d more", more))
		}
		return strings.Join(words, ", ")
	}
	return Check{Name: "PodRoutes", Status: Untested, Who: networkOperator,
		Message: "the pods of flex nodes (" + text(f.subnets(true), "none yet") + ") and of the other " +
			"nodes (" + text(f.subnets(false), "the addresses of the cluster's network") + ") need " +
			"routes to each other; a join tests them to the cluster's DNS and exits with 2 where they " +
			"are missing, later `aks-flex-node doctor` does (condition ServicesReachable)"}
}

// tunnel checks the connection from the API server to kubelets, for logs and exec.
func tunnel(f facts) Check {
	const name = "KubeletReachable"
	for _, d := range f.daemonSets.Items {
		if d.Namespace != system || d.Name != "konnectivity-agent" || !byHost(d) {
			continue
		}
		s := d.Status
		c := Check{name, OK, fmt.Sprintf("kube-system/konnectivity-agent is ready on %d of %d nodes; "+
			"these need no inbound port for `kubectl logs` and `exec`", s.NumberReady,
			s.DesiredNumberScheduled), ""}
		if s.NumberReady < s.DesiredNumberScheduled {
			c.Status, c.Who = Missing, clusterOperator
		}
		return c
	}
	from := "the API server needs"
	if f.tunnel != nil {
		if f.tunnel.Status.ReadyReplicas == 0 {
			return Check{name, Missing, "no pod of kube-system/konnectivity-agent is ready: `kubectl " +
				"logs` and `exec` work on no node", clusterOperator}
		}
		from = "the nodes of kube-system/konnectivity-agent need"
	}
	return Check{name, Untested, from + " a route to port 10250 of each flex node; `kubectl logs` " +
		"of a pod on one tests it", networkOperator}
}

// byHost reports whether each agent of a tunnel announces its node, for a server that uses the
// agent of the requested node (its proxy strategy destHost).
func byHost(d appsv1.DaemonSet) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(strings.Join(append(c.Command, c.Args...), " "), "--agent-identifiers=")
	})
}

func servingCertificates(o Options) Check {
	const name = "ServingCertificates"
	if o.Provider == "" {
		return Check{name, Untested, "without a provider, kubelets' requests are not approved " +
			"automatically: leave node.kubelet.serverTLSBootstrap off, or approve them with `kubectl " +
			"certificate approve`", clusterOperator}
	}
	return Check{name, OK, "the provider approves those of its nodes " +
		"(node.kubelet.serverTLSBootstrap)", ""}
}
