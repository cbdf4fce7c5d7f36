// Package support diagnoses a machine, without changes: doctor, endpoints, and the support bundle.
package support

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/endpoint"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// Given is the machine's current configuration.
type Given struct {
	// Input is nil if it cannot be used, with Err set. Both are nil on a machine without one.
	Input        *change.Input
	Err          error
	Unprivileged bool // the caller is not root
}

// Doctor diagnoses this machine and the way to its cluster, at any time.
func Doctor(
	ctx context.Context, a *change.Agent, given Given, wanted func(name string) bool,
) []health.Diagnosis {
	d := diagnose(ctx, a, given)
	d.examined(ctx)
	ofServers := []string{health.NamesResolved, health.PathMTU, health.EndpointsReachable,
		health.EndpointsTrusted, health.ClockAccurate}
	if slices.ContainsFunc(ofServers, wanted) {
		d.evidence.Examined.Endpoints = health.Answered(d.endpoints(ctx), nil)
	}
	d.gather(ctx, wanted(health.HostAsConfigured))
	list := health.Examine(d.evidence, wanted)
	if slices.ContainsFunc(list, func(x health.Diagnosis) bool { return x.Explained() }) {
		inspect.WithLogs(ctx, d.Home.Node, &d.evidence)
		list = health.Examine(d.evidence, wanted)
	}
	return list
}

// patient is the examined machine: its records, and the configuration in force.
type patient struct {
	*change.Home
	given    Given
	config   config.Config   // the node's, else the given one, else only defaults
	at       inspect.Cluster // its API server, as far as known
	seen     host.Facts
	evidence health.Evidence
}

// diagnose opens the machine's records as far as they can be read.
func diagnose(ctx context.Context, a *change.Agent, given Given) *patient {
	p := &patient{given: given}
	x := &health.Examined{Unprivileged: given.Unprivileged}
	var err error
	if !given.Unprivileged {
		p.Home, err = change.OpenReadOnly(ctx, a)
		x.State = health.Tried(err)
	}
	if p.Home == nil || err != nil {
		p.Home = change.Unopened(a)
	}
	switch {
	case p.Saved.Live != nil:
		p.config = p.Saved.ConfigOf(cmp.Or(p.Saved.Applied, p.Saved.Live))
		p.at = p.Saved.At()
	case given.Input != nil:
		p.config = given.Input.Config
		if p.config.Located() {
			p.at, _ = change.NewLocator(p.Home).Locate(ctx, p.config) // it only reads the configuration
		}
	default:
		defaults, _ := config.Read([]byte("{}"), nil) // it has no cluster
		p.config = defaults.Config
	}
	if given.Input != nil || given.Err != nil {
		x.Configuration = health.Tried(given.Err)
	}
	p.evidence = inspect.NewEvidence(p.Node, p.config)
	p.evidence.Examined = x
	return p
}

func (p *patient) examined(ctx context.Context) {
	x := p.evidence.Examined
	var err error
	query := inspect.Query(p.Node, p.config)
	query.Firewalls = query.Firewalls && !p.given.Unprivileged
	if p.seen, err = p.Reader.Facts(ctx, query); err != nil {
		p.evidence.Observed = health.Tried(err)
		return
	}
	x.Examination = p.Reader.Examine(node.Modules())
	p.ownersSettings()
	if p.Saved.Live == nil {
		inspect.Upkeep(ctx, p.Node, p.at, p.seen, &p.evidence)
	}
}

// ownersSettings lists the owner's files that override ours, and finds out whether the owner has
// configured kubelet to accept cgroup v1.
func (p *patient) ownersSettings() {
	x := p.evidence.Examined
	kubelet := path.Join(p.config.Paths.Kubernetes.ConfigDir, "kubelet.conf.d")
	dirs := []string{kubelet, "/etc/containerd/conf.d"}
	for _, of := range []string{"/etc", "/run", "/usr/lib"} { // systemd.unit(5)
		of += "/systemd/system/"
		dirs = append(dirs, of+node.KubeletUnit+".d", of+node.ContainerdUnit+".d")
	}
	for _, dir := range dirs {
		names, _ := p.Reader.List(dir) // there may be none
		for _, name := range names {
			file := path.Join(dir, name)
			if strings.Contains(name, "aks-flex-node") {
				continue
			}
			x.OwnersSettings = append(x.OwnersSettings, file)
			text, err := p.Reader.ReadFile(file)
			x.CgroupV1Allowed = x.CgroupV1Allowed || err == nil && dir == kubelet &&
				strings.Contains(string(text), "failCgroupV1: false")
		}
	}
	if text, err := p.Reader.ReadFile("/etc/default/kubelet"); err == nil && len(text) > 0 {
		x.OwnersSettings = append(x.OwnersSettings, "/etc/default/kubelet")
	}
}

func (p *patient) gather(ctx context.Context, drift bool) {
	x := p.evidence.Examined
	if p.Saved.Live == nil {
		p.prospect(ctx)
		return
	}
	work := inspect.Working(ctx, p.Node.Env)
	p.evidence = inspect.EvidenceOf(ctx, p.Node, work)
	p.evidence.Examined = x
	if !p.evidence.Probe.Asked && p.evidence.Node.Err != nil {
		inspect.ProbeEvidence(ctx, p.Node, p.at, &p.evidence)
	}
	if drift {
		plan, unseen := inspect.MachineDrift(ctx, p.Node)
		inspect.WithDrift(ctx, p.Node, &p.evidence, plan, unseen, work)
	}
}

func (p *patient) prospect(ctx context.Context) {
	e, c := &p.evidence, p.config
	e.Waiting = inspect.ReadWaiting(p.Node.Env)
	_ = inspect.MachineEvidence(ctx, p.Node, p.seen, e) // without it, conditions are Unknown
	installed := func(u host.InstalledUnit) bool { return u.Name == node.KubeletUnit }
	if p.given.Unprivileged && slices.ContainsFunc(p.seen.Units, installed) {
		inspect.ServiceEvidence(ctx, p.Node, e)
	}
	e.Transition = p.Saved.Transition
	if p.given.Input == nil || e.Observed.Err != nil {
		return
	}
	t, err := change.Aim(ctx, p.Home, *p.given.Input)
	if err == nil {
		err = t.Locator.Ready(ctx, c, p.seen)
	}
	if err == nil {
		t.At, err = t.Locator.Locate(ctx, c)
	}
	if err != nil {
		e.Probe = health.Tried(err)
		return
	}
	inspect.ProbeEvidence(ctx, p.Node, t.At, e)
	if e.Probe.OK() {
		e.Probe = health.Tried(inspect.Allowed(ctx, p.Node, c, t.At))
		e.Credential.Asked = e.Probe.OK()
	}
	if server, err := change.ServerVersion(ctx, p.Home, t); err == nil {
		e.ServerVersion = health.Answered(server, nil)
	}
}

const patience = 5 * time.Second // bounds the wait for one server's answer

// Endpoints lists all servers that the configuration needs, and tries them. It changes nothing.
func Endpoints(ctx context.Context, a *change.Agent, given Given) ([]health.Endpoint, error) {
	p := diagnose(ctx, a, given)
	if err := p.evidence.Examined.State.Err; err != nil {
		return nil, err
	}
	if p.Saved.Live == nil && given.Input == nil {
		if given.Unprivileged && given.Err == nil {
			return nil, errors.New("cannot determine the servers that this machine needs without root: " +
				"run it with sudo, or use --config")
		}
		return nil, cmp.Or(given.Err, inspect.ErrNoNode)
	}
	return p.endpoints(ctx), nil
}

func (p *patient) endpoints(ctx context.Context) []health.Endpoint {
	var list []health.Endpoint
	if p.Saved.Live != nil || p.given.Input != nil {
		list = endpoint.Needed(endpoint.Asked{
			Config: p.config, Joining: !p.Saved.Joined(), Server: p.at.Server,
			Arch: cmp.Or(p.seen.Arch, "amd64"), ReadFile: p.Reader.ReadFile,
		})
	}
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() { p.try(ctx, &list[i]) })
	}
	all.Wait()
	return list
}

func (p *patient) try(ctx context.Context, e *health.Endpoint) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Patience, patience))
	defer cancel()
	t := kube.Target{Server: e.URL, Name: e.Purpose, Options: p.Home.Options(p.config)}
	if e.Cluster {
		t.CA, t.Name = []byte(p.at.CA), ""
	}
	if strings.Contains(e.Purpose, endpoint.Provider) {
		t.Roots = change.ProviderRoots(p.Agent, p.config)
	}
	if e.URL == endpoint.Metadata {
		t.Proxy = nil // it is on the machine's own link
	}
	e.Reached, e.Err = kube.Reach(ctx, t)
}
