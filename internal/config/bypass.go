package config

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// The size of the service network that is assumed around the DNS service's address: a /16, as AKS
// has by default, and the largest that Kubernetes takes for IPv6.
const (
	serviceBits4 = 16
	serviceBits6 = 108
)

// Bypass lists what is never requested through the proxy, in the form of NO_PROXY: this machine,
// Azure's metadata services, the cluster's services and pods, and what the user adds. The service
// network is not part of the configuration; it is assumed to be the /16 (IPv6: /108) around
// node.kubelet.dnsServiceIP. The API server is reached through the proxy unless the user lists it.
func (c Config) Bypass() []string {
	list := []string{
		"localhost", "127.0.0.1", "::1", "169.254.169.254", "168.63.129.16", ".svc",
		".cluster.local",
	}
	if services, ok := c.serviceCIDR(); ok {
		list = append(list, services.String())
	}
	list = append(list, c.CNI.PodCIDR)
	list = append(list, strings.Split(c.Node.Kubelet.NodeIP, ",")...)
	list = append(list, c.Proxy.NoProxy...)
	var unique []string
	for _, s := range list {
		if s != "" && !slices.Contains(unique, s) {
			unique = append(unique, s)
		}
	}
	return unique
}

// serviceCIDR is the network that the cluster's services are assumed to be in; false where the
// address of the DNS service does not tell.
func (c Config) serviceCIDR() (netip.Prefix, bool) {
	addr, err := netip.ParseAddr(c.Node.Kubelet.DNSServiceIP)
	if err != nil || addr.IsLinkLocalUnicast() {
		return netip.Prefix{}, false
	}
	bits := serviceBits6
	if addr.Is4() {
		bits = serviceBits4
	}
	p, err := addr.Prefix(bits)
	return p, err == nil
}

// ProxyFunc chooses the proxy of a request, as http.Transport.Proxy: the configured one, and never
// one of the environment.
func (c Config) ProxyFunc() func(*http.Request) (*url.URL, error) {
	settings := httpproxy.Config{
		HTTPProxy:  c.Proxy.HTTP.Reveal(),
		HTTPSProxy: c.Proxy.HTTPS.Reveal(),
		NoProxy:    strings.Join(c.Bypass(), ","),
	}
	choose := settings.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}
