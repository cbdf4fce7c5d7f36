package config

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Prefix lengths of a node's own pod subnet: enough for a few pods, but not a likely mistake.
const podBitsMin4, podBitsMax4, podBitsMin6, podBitsMax6 = 8, 29, 32, 125

// The values of network.firewall, for a firewall that stops a node's traffic.
const FirewallManage, FirewallCheck, FirewallIgnore = "manage", "check", "ignore"

// The values of network.metadata: whether pods reach the metadata service of the machine's cloud.
const MetadataBlock, MetadataAllow = "block", "allow"

func isListenAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || !isWhole(port, 1, 65535) {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Zone() == "")
}

// PodCIDRLabel holds a Node's configured pod subnet: a kubelet cannot write spec.podCIDR.
const PodCIDRLabel = "flexnode.azure.com/pod-cidr"

// ShowPodCIDR formats a subnet as a value of PodCIDRLabel: 10.244.1.0-24; IPv6 in full, - for :.
func ShowPodCIDR(podCIDR string) string {
	p, err := netip.ParsePrefix(podCIDR)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(p.Addr().StringExpanded(), ":", "-"), p.Bits())
}

func isPodCIDR(s string) bool {
	p, _ := netip.ParsePrefix(s)
	low, high := podBitsMin6, podBitsMax6
	if p.Addr().Is4() {
		low, high = podBitsMin4, podBitsMax4
	}
	return isNetwork(s) && p.Addr().IsGlobalUnicast() && low <= p.Bits() && p.Bits() <= high
}

// isNetwork reports whether s is a network in canonical form.
func isNetwork(s string) bool {
	p, err := netip.ParsePrefix(s)
	return err == nil && p == p.Masked() && p.String() == s && !p.Addr().Is4In6()
}

func isNoProxy(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil || s == "*" {
		return true
	}
	if host, port, err := net.SplitHostPort(s); err == nil && isWhole(port, 1, 65535) {
		s = host
	}
	return isHost(strings.TrimPrefix(strings.TrimPrefix(s, "*"), "."))
}

// WithDNS returns the configuration with the DNS service's address. The error is of type Problems.
func (c Config) WithDNS(address string) (Config, error) {
	c.Node.Kubelet.DNSServiceIP = address
	r := &report{}
	if !IsDNS(address) {
		r.add("node.kubelet.dnsServiceIP", show(address), "must be an IP address")
	}
	checkNetwork(c, r)
	return c, r.err(c)
}

func checkNetwork(c Config, r *report) {
	host, _, _ := net.SplitHostPort(c.Containerd.MetricsAddress)
	if addr, err := netip.ParseAddr(host); err == nil && !addr.IsLoopback() {
		r.warn("containerd.metricsAddress", "containerd's metrics have no authentication: "+
			c.Containerd.MetricsAddress+" shows them to the network")
	}
	pods, err := netip.ParsePrefix(c.CNI.PodCIDR)
	if err != nil || r.spoiled("cni.podCIDR") {
		return
	}
	k := c.Node.Kubelet
	refuse := func(format string, arg any) {
		r.add("cni.podCIDR", show(c.CNI.PodCIDR), fmt.Sprintf(format, arg))
	}
	if services, ok := c.serviceCIDR(); ok &&
		(services.Overlaps(pods) || services.Addr().Is4() != pods.Addr().Is4()) {
		refuse("must not overlap the cluster's services, which are around "+
			"node.kubelet.dnsServiceIP (%s), and must be of the same family", k.DNSServiceIP)
	}
	for ip := range strings.SplitSeq(k.NodeIP, ",") {
		if addr, err := netip.ParseAddr(ip); err == nil && pods.Contains(addr) {
			refuse("must not contain the node's own address (%s)", ip)
		}
	}
	// Two addresses belong to the network and the bridge, one is the broadcast address.
	if free := pods.Addr().BitLen() - pods.Bits(); free < 16 && 1<<free-3 < c.Node.MaxPods {
		r.warn("cni.podCIDR", fmt.Sprintf("%s has addresses for %d pods, and node.maxPods is %d",
			c.CNI.PodCIDR, 1<<free-3, c.Node.MaxPods))
	}
}

// Bypass lists the destinations that bypass the proxy, as in NO_PROXY: this machine, metadata
// services, the cluster's services (serviceCIDR) and pods, and the user's own; the API server only
// if the user lists it.
func (c Config) Bypass() []string {
	list := []string{
		"localhost", "127.0.0.1", "::1", "169.254.169.254", "168.63.129.16", ".svc", ".cluster.local",
	}
	if services, ok := c.serviceCIDR(); ok {
		list = append(list, services.String())
	}
	list = slices.Concat(list, []string{c.CNI.PodCIDR}, strings.Split(c.Node.Kubelet.NodeIP, ","),
		c.Proxy.NoProxy)
	var unique []string
	for _, s := range list {
		if s != "" && !slices.Contains(unique, s) {
			unique = append(unique, s)
		}
	}
	return unique
}

// serviceCIDR returns the assumed network of the cluster's services around the DNS service: a /16,
// AKS's default, or the largest that Kubernetes accepts for IPv6; false if it is unknown.
func (c Config) serviceCIDR() (netip.Prefix, bool) {
	addr, err := netip.ParseAddr(c.Node.Kubelet.DNSServiceIP)
	if err != nil || addr.IsLinkLocalUnicast() {
		return netip.Prefix{}, false
	}
	bits := 108
	if addr.Is4() {
		bits = 16
	}
	p, err := addr.Prefix(bits)
	return p, err == nil
}

// ProxyFunc returns an http.Transport.Proxy for the configured proxy. It ignores the environment.
func (c Config) ProxyFunc() func(*http.Request) (*url.URL, error) {
	settings := httpproxy.Config{
		HTTPProxy: c.Proxy.HTTP.Reveal(), HTTPSProxy: c.Proxy.HTTPS.Reveal(),
		NoProxy: strings.Join(c.Bypass(), ","),
	}
	choose := settings.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}
