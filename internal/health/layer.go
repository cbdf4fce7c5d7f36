package health

import "slices"

// Layer is where on the way from the machine to its Node a condition stands.
type Layer string

// The layers: what is wrong in one explains what is wrong in those after it, as causes has it.
const (
	LayerConfiguration Layer = "configuration"
	LayerMachine       Layer = "machine"
	LayerNetwork       Layer = "network"
	LayerDNS           Layer = "DNS"
	LayerClock         Layer = "clock"
	LayerTLS           Layer = "TLS and proxy"
	LayerCredential    Layer = "credential"
	LayerAPIServer     Layer = "API server"
	LayerRuntime       Layer = "runtime"
	LayerKubelet       Layer = "kubelet"
	LayerNode          Layer = "node"
)

// layers lists all layers in their order.
func layers() []Layer {
	return []Layer{LayerConfiguration, LayerMachine, LayerNetwork, LayerDNS, LayerClock, LayerTLS,
		LayerCredential, LayerAPIServer, LayerRuntime, LayerKubelet, LayerNode}
}

// layerOf is the layer of a condition. What keeps the API server from being reached is in the layer
// that is broken.
func layerOf(c Condition) Layer {
	l := LayerNode
	if i := slices.Index(Names(), c.Type); i >= 0 {
		l = catalogue()[i].layer
	}
	if c.Type != APIServerReachable || c.Status != False {
		return l
	}
	switch c.Reason {
	case "NameNotResolved":
		return LayerDNS
	case "NotConnected":
		return LayerNetwork
	case "ProxyRefused", "NotTrusted":
		return LayerTLS
	case "ClockOrCertificate":
		return LayerClock
	}
	return l
}

// causes are the layers in which the cause of what is wrong in a layer can be.
func causes(l Layer) []Layer {
	way := []Layer{LayerNetwork, LayerDNS, LayerClock, LayerTLS}
	switch l {
	case LayerDNS:
		return []Layer{LayerNetwork}
	case LayerTLS:
		return way[:3]
	case LayerAPIServer:
		return way
	case LayerCredential:
		return append(way, LayerAPIServer)
	case LayerRuntime:
		return []Layer{LayerMachine}
	case LayerKubelet:
		return []Layer{LayerMachine, LayerRuntime}
	case LayerNode:
		return append(way, LayerMachine, LayerCredential, LayerAPIServer, LayerRuntime, LayerKubelet)
	}
	return nil
}

// underived are the conditions that nothing else explains: they are of a file or a setting, which
// is what it is whatever the network does.
func underived() []string {
	return []string{PrincipalCertificate, ClusterCAValid, TimeSynchronized}
}

// beside are the conditions of the same layer in which the cause of one can be.
func beside(name string) []string {
	switch name {
	case APIServerReachable:
		return []string{DefaultRoute, PathMTU, ResolverConfigured, NamesResolved, ClockAccurate,
			ClusterCAValid}
	case EndpointsReachable:
		return []string{DefaultRoute, APIServerReachable}
	case NamesResolved:
		return []string{ResolverConfigured}
	case EndpointsTrusted:
		return []string{APIServerReachable}
	case CredentialValid, CertificateIssued:
		return []string{PrincipalCertificate, KubeletCertificate, ArcConnected, CredentialValid}
	case KubeletCertificate:
		return []string{PrincipalCertificate}
	case KubeletStable, KubeletHealthy:
		return []string{KubeletRunning, KubeletStable}
	case LeaseRenewed, NodeReady:
		return []string{NodeRegistered}
	case RunsAsConfigured, PodSubnetsAgree, PodsSynchronized:
		return []string{NodeRegistered, LeaseRenewed, NodeReady}
	case HostAsConfigured:
		return []string{NodeRegistered, NodeReady, PodSubnetsAgree, LabelsApplied}
	}
	return nil
}
