package health

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Services is what came of connecting to the cluster's own Services from the machine.
type Services struct {
	Tried []Connection
	// DNS is the address of the cluster's DNS Service; "" when it is not known.
	DNS string
}

// Connection is an attempt to connect to a Service.
type Connection struct {
	// Service is its name, Address its ClusterIP and port.
	Service, Address string
	Err              error
}

// Why Services cannot be reached, where time may cure it.
const (
	proxyMissing = "ProxyMissing"
	notReachable = "NotReachable"
)

// servicesGuide is where it is written what makes Services work.
const servicesGuide = "docs/services.md says what the cluster needs"

// servicesReachable: that the Node is Ready says nothing about Services. Without them pods resolve
// no name.
func servicesReachable(e Evidence) Condition {
	if !e.Services.OK() {
		return e.Services.missing()
	}
	var silent []string
	for _, c := range e.Services.Value.Tried {
		if c.Err != nil {
			silent = append(silent, fmt.Sprintf("%s (%s: %s)", c.Service, c.Address, oneLine(c.Err)))
		}
	}
	dns, told := e.Services.Value.DNS, e.Wanted.DNS
	switch {
	case len(silent) > 0 && e.Pods.OK() && !slices.ContainsFunc(e.Pods.Value, proxies):
		return fails(OwnerCluster, proxyMissing, "Services cannot be reached, and so no names "+
			"resolved: no kube-proxy runs on this node, nor what replaces it; "+servicesGuide)
	case len(silent) > 0:
		return fails(OwnerNetwork, notReachable, "this machine cannot reach Services: "+
			Clip(strings.Join(silent, "; "), longestLine)+"; a proxy that has just started takes a "+
			"moment; else see its log, whether a firewall of this machine drops what it forwards, "+
			"and whether the network has routes to the pods behind the Service; "+servicesGuide)
	case dns != "" && told != "" && dns != told && !linkLocal(told):
		return fails(OwnerConfiguration, "DNSAddressDiffers", "pods are told to ask "+told+
			" for names, and the cluster's DNS Service is "+dns+": set node.kubelet.dnsServiceIP")
	}
	return holds()
}

// Awaited tells whether what comes by itself to a node that has just become Ready is not there yet:
// Services, and a serving certificate that the cluster issues.
func Awaited(e Evidence) bool {
	c := servicesReachable(e)
	late := c.Status == False && (c.Reason == proxyMissing || c.Reason == notReachable)
	return late || servingCertificate(e).Status == False
}

// proxies tells whether a pod is what makes Services work on its node.
func proxies(pod corev1.Pod) bool {
	for _, name := range []string{"kube-proxy", "cilium", "kube-router", "calico-node", "antrea"} {
		if strings.HasPrefix(pod.Name, name) {
			return true
		}
	}
	return false
}

// linkLocal tells whether DNS is a cache on each node (NodeLocal DNSCache).
func linkLocal(address string) bool { return strings.HasPrefix(address, "169.254.") }
