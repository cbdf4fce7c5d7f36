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
	OK      = "ok"
	Missing = "missing"
	// Untested means that only a flex node can test it; the message explains how.
	Untested = "untested"
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

// checks checks the requirements of flex nodes, from the API server to the pods of others.
func checks(f facts, o Options, s services) []Check {
	return []Check{
		apiServer(f), kubernetesVersion(f, o), clusterDNS(f), serviceProxy(f, s), podSubnets(f),
		podRoutes(f), tunnel(f), servingCertificates(o),
	}
}

func apiServer(f facts) Check {
	c := Check{Name: "APIServer", Status: Untested, Who: networkOperator}
	u, err := url.Parse(f.server)
	if err != nil {
		u = &url.URL{}
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		c.Status, c.Who = Missing, clusterOperator
		c.Message = "machines cannot reach " + f.server + ": set the address that they can reach " +
			"with --server"
		return c
	}
	c.Message = "this computer reaches the API server; whether a machine reaches " + f.server +
		" is tested there, by `aks-flex-node endpoints`"
	if err == nil && ip.IsPrivate() || strings.Contains(u.Hostname(), ".privatelink.") {
		c.Message += "; the address is private, so machines need a way to its network, such as a VPN " +
			"or ExpressRoute"
	}
	return c
}

func kubernetesVersion(f facts, o Options) Check {
	c := Check{Name: "KubernetesVersion", Status: OK, Message: plain(f.version)}
	is, cure := plain(f.version), ": upgrade the cluster"
	switch {
	case o.Provider == "":
	case f.version.LessThan(confining):
		c.Status, c.Message = Missing, is+" is older than "+confining.String()+", which confines the "+
			"provider to its own Secrets, and than "+revoking.String()+", which shuts the machines of "+
			"deleted nodes out"+cure
	case f.version.LessThan(revoking):
		c.Status, c.Message = Missing, is+" is older than "+revoking.String()+", which shuts the "+
			"machines of deleted nodes out"+cure
	}
	if c.Status == Missing {
		c.Who = clusterOperator
	}
	return c
}

func clusterDNS(f facts) Check {
	c := Check{Name: "ClusterDNS", Status: Missing, Who: clusterOperator}
	ready := 0
	for _, s := range f.endpoints {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready += len(e.Addresses)
			}
		}
	}
	switch {
	case f.dns == nil:
		c.Message = "there is no Service kube-system/kube-dns, by which pods resolve names: install " +
			"CoreDNS, or set dnsServiceIP in the cluster's registration"
	case ready == 0:
		c.Message = "the Service kube-system/kube-dns (" + f.dns.Spec.ClusterIP + ") has no ready " +
			"endpoints: see the pods of CoreDNS"
	default:
		c = Check{Name: c.Name, Status: OK, Message: fmt.Sprintf("kube-system/kube-dns, %s, with %d "+
			"ready endpoints", f.dns.Spec.ClusterIP, ready)}
	}
	return c
}

// serviceProxy checks that Services work on flex nodes.
func serviceProxy(f facts, s services) Check {
	c := Check{Name: "Services", Status: OK}
	const conflict = "two programs would write rules for the same Service"
	switch {
	case s.apply && s.by != "":
		c.Status, c.Who = Missing, clusterOperator
		c.Message = s.by + " lands on flex nodes, as kube-proxy.yaml does: " + conflict +
			"; use --kube-proxy no"
	case s.apply && s.old, s.by == "" && s.old:
		c.Status, c.Who = Missing, clusterOperator
		c.Message = "kube-proxy.yaml needs Kubernetes " + nftProxies.String() + ", the cluster has " +
			plain(f.version) + ": upgrade it, or let another kube-proxy land on flex nodes"
	case s.apply:
		c.Message = "kube-proxy.yaml, as DaemonSet kube-system/" + ourProxy
		if d := f.notReady(); d != "" {
			c.Status, c.Message, c.Who = Missing, c.Message+": "+d, clusterOperator
		}
	case s.by != "":
		c.Message = s.by + " lands on flex nodes"
	default:
		c.Status, c.Who = Missing, clusterOperator
		c.Message = "neither kube-proxy nor a replacement is scheduled on flex nodes: pods cannot " +
			"resolve names or reach Services; use --kube-proxy yes"
	}
	return c
}

// notReady describes how many flex nodes lack a ready kube-proxy of ours; "" if none, or if there
// are no flex nodes yet.
func (f facts) notReady() string {
	if !slices.ContainsFunc(f.nodes, isFlex) {
		return ""
	}
	for _, d := range f.daemonSets {
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
	for _, n := range f.nodes {
		if isFlex(n) != flex {
			continue
		}
		for _, text := range cidrs(n) {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

func isFlex(n corev1.Node) bool { return n.Labels[flexLabel] == "false" }

func cidrs(n corev1.Node) []string {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return n.Spec.PodCIDRs
}

func podSubnets(f facts) Check {
	c := Check{Name: "PodSubnets", Status: OK}
	all := append(f.subnets(false), f.subnets(true)...)
	for i, a := range all {
		if slices.ContainsFunc(all[:i], a.Overlaps) {
			c.Status, c.Who = Missing, nodeOwner
			c.Message = "two nodes have pods in " + a.String() + ": give one of them another cni.podCIDR"
			return c
		}
	}
	switch {
	case len(f.nodes) == 0:
		c.Status, c.Who = Untested, nodeOwner
		c.Message = "no nodes yet; a flex node without `spec.podCIDR` needs cni.podCIDR"
	case len(all) == 0:
		c.Status, c.Who = Untested, nodeOwner
		c.Message = "the cluster allocates no pod subnets to nodes: each flex node needs its own " +
			"cni.podCIDR, outside of the cluster's pod network, or podCidr in the registration; the " +
			"join tests it"
	default:
		c.Message = "the cluster allocates them to nodes"
	}
	return c
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
	c := Check{Name: "KubeletReachable", Status: Untested, Who: networkOperator}
	by := "the API server needs"
	for _, d := range f.daemonSets {
		if d.Namespace == system && d.Name == "konnectivity-agent" && byHost(d) {
			return agents(c, d.Status)
		}
	}
	switch t := f.tunnel; {
	case t != nil && t.Status.ReadyReplicas == 0:
		c.Status, c.Who = Missing, clusterOperator
		c.Message = "no pod of kube-system/konnectivity-agent is ready: `kubectl logs` and `exec` work " +
			"on no node"
		return c
	case t != nil:
		by = "the nodes of kube-system/konnectivity-agent need"
	}
	c.Message = by + " a route to port 10250 of each flex node; " +
		"`kubectl logs` of a pod on one tests it"
	return c
}

// byHost reports whether each agent of a tunnel announces its node, for a server that uses the
// agent of the requested node (its proxy strategy destHost).
func byHost(d appsv1.DaemonSet) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(strings.Join(append(c.Command, c.Args...), " "), "--agent-identifiers=")
	})
}

// agents completes the check of a tunnel that has an agent on each node.
func agents(c Check, s appsv1.DaemonSetStatus) Check {
	c.Status, c.Who = OK, ""
	if s.NumberReady < s.DesiredNumberScheduled {
		c.Status, c.Who = Missing, clusterOperator
	}
	c.Message = fmt.Sprintf("kube-system/konnectivity-agent is ready on %d of %d nodes; these need "+
		"no inbound port for `kubectl logs` and `exec`", s.NumberReady, s.DesiredNumberScheduled)
	return c
}

func servingCertificates(o Options) Check {
	c := Check{Name: "ServingCertificates", Status: OK,
		Message: "the provider approves those of its nodes (node.kubelet.serverTLSBootstrap)"}
	if o.Provider == "" {
		c.Status, c.Who = Untested, clusterOperator
		c.Message = "without a provider, kubelets' requests are not approved automatically: leave " +
			"node.kubelet.serverTLSBootstrap off, or approve them with `kubectl certificate approve`"
	}
	return c
}
