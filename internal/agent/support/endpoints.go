package support

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// patience is how long one server may take to answer.
const patience = 5 * time.Second

// Endpoints lists every server that the configuration needs, and tries them. It changes nothing.
func Endpoints(ctx context.Context, a *change.Agent, given Given) ([]health.Endpoint, error) {
	p := diagnose(ctx, a, given)
	if err := p.evidence.Examined.State.Err; err != nil {
		return nil, err
	}
	if p.Saved.Live == nil && given.Input == nil {
		if given.Unprivileged && given.Err == nil {
			return nil, errors.New("cannot tell without root what this machine needs: run it with sudo, " +
				"or name a configuration with --config")
		}
		return nil, cmp.Or(given.Err, inspect.ErrNoNode)
	}
	return p.endpoints(ctx), nil
}

// endpoints tries the servers that the configuration needs, all at once.
func (p *patient) endpoints(ctx context.Context) []health.Endpoint {
	list := p.needed()
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() { p.try(ctx, &list[i]) })
	}
	all.Wait()
	return list
}

// try goes the way to one server.
func (p *patient) try(ctx context.Context, e *health.Endpoint) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Patience, patience))
	defer cancel()
	t := kube.Target{Server: e.URL, Name: e.Purpose, Options: inspect.Options(p.Home.Node.Env,
		p.config)}
	if e.Cluster {
		t.CA, t.Name = []byte(p.at.CA), ""
	}
	if e.URL == imds {
		t.Proxy = nil // it is on the machine's own link
	}
	e.Reached, e.Err = kube.Reach(ctx, t)
}

// imds is where an Azure VM gets its tokens.
const imds = "http://169.254.169.254"

// needed are the servers that the configuration needs. On a machine that is no node they are
// needed now; on a node most are for a change to come.
func (p *patient) needed() []health.Endpoint {
	var list []health.Endpoint
	c, joining := p.config, !p.Saved.Joined()
	if p.Saved.Live == nil && p.given.Input == nil {
		return nil
	}
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
	add(p.at.Server, "the API server", true)
	if len(list) > 0 {
		list[0].Cluster = true
	}
	p.azureEndpoints(c, joining, add)
	p.artifactEndpoints(c, joining, add)
	p.registry(c, joining, add)
	return list
}

// azureEndpoints are those of the node's identity, of the cluster's resource, and of the provider.
func (p *patient) azureEndpoints(c config.Config, joining bool, add func(string, string, bool)) {
	az := c.Azure
	follows := c.ContinuousMonitoring
	identity := az.AuthMode() != config.AuthBootstrapToken || follows
	daily := joining || az.ShowsToken() || follows
	if identity {
		if az.ServicePrincipal != nil {
			add(az.AuthorityHost, "Entra ID", daily)
		}
		if az.ManagedIdentity != nil {
			add(imds, "the VM's metadata service", daily)
		}
		if az.AuthMode() != config.AuthBootstrapToken && !inspect.Located(c) || az.ArcEnabled() {
			add(az.ResourceManagerEndpoint, "Azure Resource Manager", joining)
		}
	}
	if follows {
		add(cmp.Or(c.Agent.Monitoring.Endpoint, az.ResourceManagerEndpoint), "the resource provider",
			true)
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

// artifactEndpoints are where programs are downloaded from: mirrors first, then upstream.
func (p *patient) artifactEndpoints(c config.Config, joining bool, add func(string, string, bool)) {
	mirrors := artifact.NewSource(c.Artifacts, nil).Mirrors
	for i, m := range mirrors {
		add(m, "programs (mirror)", joining && i == 0)
	}
	if c.Artifacts.Directory != "" {
		return
	}
	if c.Kubernetes.Version == "" {
		c.Kubernetes.Version = "0.0.0" // the host is the same for all
	}
	for _, s := range change.Specs(c, cmp.Or(p.seen.Arch, "amd64")) {
		at := artifact.Upstream(s, c.Artifacts.Overrides)
		add(at, "programs", joining && len(mirrors) == 0)
	}
}

// mirrored finds the servers in a hosts.toml of containerd.
var mirrored = regexp.MustCompile(`(?m)^\s*\[host\."([^"]+)"\]`)

// registry is where the image of each pod's sandbox comes from. A machine without a network for
// programs has its images, too.
func (p *patient) registry(c config.Config, joining bool, add func(string, string, bool)) {
	host, _, _ := strings.Cut(c.Containerd.PauseImage, "/")
	needed := joining && c.Artifacts.Directory == ""
	for _, dir := range []string{host, "_default"} {
		hosts, err := p.Reader.ReadFile(path.Join("/etc/containerd/certs.d", dir, "hosts.toml"))
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
