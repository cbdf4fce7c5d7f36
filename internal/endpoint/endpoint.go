// Package endpoint lists the servers that a configuration needs. It makes no requests: package kube
// tries to reach one, and package agent/support tries all.
package endpoint

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// Metadata is the service from which an Azure VM gets its tokens.
const Metadata = "http://169.254.169.254"

// Provider is the purpose of the resource provider.
const Provider = "the resource provider"

// Asked describes the machine whose servers are listed.
type Asked struct {
	Config  config.Config
	Joining bool   // the machine is not a node yet
	Server  string // its API server, "" if unknown
	Arch    string // the architecture of the machine
	// ReadFile reads a file of the machine.
	ReadFile func(path string) ([]byte, error)
}

// Needed returns the servers that a configuration needs. A machine that is not a node needs them
// now; a node needs most of them only for a future change.
func Needed(p Asked) []health.Endpoint {
	var list []health.Endpoint
	add := func(raw, purpose string, needed bool) {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" {
			return
		}
		e := health.Endpoint{URL: u.Scheme + "://" + u.Host, Purpose: purpose, Needed: needed}
		at := slices.IndexFunc(list, func(o health.Endpoint) bool { return o.URL == e.URL })
		if at < 0 {
			list = append(list, e)
			return
		}
		list[at].Needed = list[at].Needed || needed
		if !strings.Contains(list[at].Purpose, purpose) {
			list[at].Purpose += ", " + purpose
		}
	}
	add(p.Server, "the API server", true)
	if len(list) > 0 {
		list[0].Cluster = true
	}
	p.azure(add)
	p.artifacts(add)
	p.registry(add)
	return list
}

// azure adds the servers for the node's identity, for the cluster's resource, and the provider.
func (p Asked) azure(add func(raw, purpose string, needed bool)) {
	c, az := p.Config, p.Config.Azure
	follows := c.ContinuousMonitoring
	identity := az.AuthMode() != config.AuthBootstrapToken || follows
	daily := p.Joining || az.ShowsToken() || follows
	if identity {
		if az.ServicePrincipal != nil {
			add(az.AuthorityHost, "Entra ID", daily)
		}
		if az.ManagedIdentity != nil {
			add(Metadata, "the VM's metadata service", daily)
		}
		if az.AuthMode() != config.AuthBootstrapToken && !c.Located() || az.ArcEnabled() {
			add(az.ResourceManagerEndpoint, "Azure Resource Manager", p.Joining)
		}
	}
	if follows {
		own := strings.TrimPrefix(c.Agent.Monitoring.Endpoint, config.ResourceManager)
		add(cmp.Or(own, az.ResourceManagerEndpoint), Provider, true)
	}
	if !az.ArcEnabled() {
		return
	}
	repository := "https://packages.microsoft.com"
	if az.Arc.Package != nil {
		repository = cmp.Or(az.Arc.Package.URL, repository)
	}
	add(repository, "the package of the Arc agent", false)
	if az.ResourceManagerEndpoint == "https://management.azure.com" {
		add("https://gbl.his.arc.azure.com", "Azure Arc: identity", true)
		add("https://agentserviceapi.guestconfiguration.azure.com", "Azure Arc: agent", false)
	}
}

// artifacts adds the sources of programs: mirrors first, then upstream.
func (p Asked) artifacts(add func(raw, purpose string, needed bool)) {
	c := p.Config
	mirrors := artifact.NewSource(c.Artifacts, nil).Mirrors
	for i, m := range mirrors {
		add(m, "programs (mirror)", p.Joining && i == 0)
	}
	if c.Artifacts.Directory != "" {
		return
	}
	if c.Kubernetes.Version == "" {
		c.Kubernetes.Version = "0.0.0" // the host is the same for all versions
	}
	for _, a := range artifact.Wanted(c, p.Arch) {
		add(artifact.Upstream(a, c.Artifacts.Overrides), "programs", p.Joining && len(mirrors) == 0)
	}
}

// mirrored matches the servers in a hosts.toml of containerd.
var mirrored = regexp.MustCompile(`(?m)^\s*\[host\."([^"]+)"\]`)

// registry adds the source of the pods' sandbox image. A machine without a network for programs has
// its images, too.
func (p Asked) registry(add func(raw, purpose string, needed bool)) {
	c := p.Config
	host, _, _ := strings.Cut(c.Containerd.PauseImage, "/")
	needed := p.Joining && c.Artifacts.Directory == ""
	for _, dir := range []string{host, "_default"} {
		hosts, err := p.ReadFile(path.Join("/etc/containerd/certs.d", dir, "hosts.toml"))
		if err != nil {
			continue
		}
		for _, found := range mirrored.FindAllStringSubmatch(string(hosts), -1) {
			add(found[1], "container images (mirror)", false)
			needed = false
		}
		break
	}
	add("https://"+host, "container images", needed)
}
