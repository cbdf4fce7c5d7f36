package agent

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/release"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// target is what a configuration asks for, before it is known whether it is something new.
type target struct {
	input Input
	// received is the digest of the document.
	received string
	seen     host.Facts
	facts    node.Facts // without Store
	// unchanged tells that the applied generation came from the same document, on the same machine.
	unchanged bool
	locator   *locator
	at        where
	// moved tells that the API server has another address or CA than was proved.
	moved bool
	// server is the cluster's version, "" when it was not asked.
	server string
	// standing reports that the target is what is applied, whatever document is wanted.
	standing bool
	// waits says why the change to it may not begin yet; nil where it may.
	waits *health.Waiting
	// daemon tells that no person has asked for it.
	daemon bool
}

// aim finds out what a configuration asks for, from this machine alone.
func (h *home) aim(ctx context.Context, in Input) (*target, error) {
	received, err := in.digest()
	if err != nil {
		return nil, err
	}
	t := &target{input: in, received: received, locator: &locator{home: h}, at: h.saved.At()}
	if t.seen, err = h.Machine.Facts(ctx, h.query(in.Config)); err != nil {
		return nil, err
	}
	t.facts = node.Facts{
		Arch: t.seen.Arch, ResolvConf: t.seen.ResolvConf, SwapUnits: slices.Clone(t.seen.SwapUnits),
		HostName: t.seen.HostName, StaticName: t.seen.StaticName,
		NvidiaRuntime:    t.seen.NvidiaRuntime,
		MetadataResolver: slices.Contains(t.seen.Resolvers, node.MetadataAddress),
	}
	h.rememberedSwap(&t.facts)
	t.facts.Advertised = h.advertised(t.seen.Advertised)
	t.facts.Firewalls = h.managedFirewalls(in.Config, t.seen)
	t.unchanged = h.saved.Applied != nil && h.saved.Applied.Received == t.received &&
		h.sameMachine(in.Config, t.facts)
	return t, nil
}

// aimAgain is a target of before as the machine is now. What the network has said about it remains.
func (h *home) aimAgain(ctx context.Context, before *target) (*target, error) {
	t, err := h.aim(ctx, before.input)
	if err != nil {
		return nil, err
	}
	if t.standing = before.standing; t.standing {
		t.received, t.unchanged = before.received, true
	}
	t.waits = before.waits
	t.locator = &locator{home: h, asked: before.locator.asked, again: before.locator.again}
	t.at, t.moved, t.server, t.daemon = before.at, before.moved, before.server, before.daemon
	return t, nil
}

// digest identifies what was received, its secrets included.
func (in Input) digest() (string, error) {
	document := in.Document
	if document == nil {
		var err error
		if document, err = in.Config.Reveal(); err != nil {
			return "", err
		}
	}
	return state.Digest(string(document)), nil
}

// sameMachine tells whether the machine still is as the applied generation was rendered for.
// One whose name kubelet took, and which has another name now, is not.
func (h *home) sameMachine(c config.Config, f node.Facts) bool {
	was, name := h.saved.Applied.Facts, c.Agent.NodeName
	return was.NvidiaRuntime == f.NvidiaRuntime && (was.Renames(name) || !f.Renames(name)) &&
		was.Arch == f.Arch && was.ResolvConf == f.ResolvConf &&
		was.MetadataResolver == f.MetadataResolver &&
		slices.Equal(was.SwapUnits, f.SwapUnits) &&
		slices.Equal(was.Firewalls, f.Firewalls)
}

// rivals are the units of container runtimes and kubelets that would be in the way of ours.
func rivals() []string {
	return []string{
		node.ContainerdUnit, node.KubeletUnit, "docker.service", "crio.service", "k3s.service",
		"k3s-agent.service",
	}
}

// query asks for all that is to be known of this machine. A unit of ours is no rival, nor is one of
// which a run that was interrupted has written no more than the file.
func (h *home) query(c config.Config) host.Query {
	ledger := h.engine.Journal.Ledger()
	units := slices.DeleteFunc(rivals(), func(unit string) bool {
		_, ours := ledger.Entry(state.UnitKey(unit))
		_, written := ledger.Entry(state.PathKey(node.UnitFile(unit)))
		return ours || written
	})
	return host.Query{
		CNIConfDir: c.Paths.CNI.ConfDir, Filesystems: []string{"/var/lib", "/opt"}, Units: units,
		Firewalls: c.Network.Firewall != config.FirewallIgnore,
	}
}

// rememberedSwap adds the swap units that an earlier run has masked: they are no longer seen on the
// machine, but the ledger remembers them.
func (h *home) rememberedSwap(f *node.Facts) {
	for _, item := range h.standingSwap() {
		f.SwapUnits = append(f.SwapUnits, item.Resource.Key().Name())
	}
	slices.Sort(f.SwapUnits)
	f.SwapUnits = slices.Compact(f.SwapUnits)
}

// standingSwap returns the swap units that are masked. They remain so as long as the machine is a
// node: to unmask one turns swap on, and kubelet refuses to start.
func (h *home) standingSwap() state.Desired {
	var all state.Desired
	for _, e := range h.engine.Journal.Ledger().Entries {
		if unit, ok := e.Ours.Resource.(state.Unit); ok && unit.Enabled == state.Masked {
			all = append(all, state.Item{Step: e.Step, Resource: unit})
		}
	}
	return all
}

// advertised adds to the interfaces on which the kernel would no longer listen to routers those on
// which an earlier run has told it to go on. They make no other machine of it: without forwarding
// IPv6 nothing follows from them, and while it forwards no other is seen.
func (h *home) advertised(seen []string) []string {
	list := slices.Clone(seen)
	for _, e := range h.engine.Journal.Ledger().Entries {
		if ours, ok := e.Ours.Resource.(state.Sysctl); ok && ours.Advertised() != "" {
			list = append(list, ours.Advertised())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// resolve renders the generation that a target asks for. It reads from the network what the
// configuration leaves open, and writes nothing.
func (h *home) resolve(
	ctx context.Context, t *target,
) (*generation.Generation, []artifact.Artifact, error) {
	c, err := h.withVersion(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	c = h.withPodNetwork(t, c)
	if c, err = h.withDNS(ctx, t, c); err != nil {
		return nil, nil, err
	}
	arts, err := h.artifacts(ctx, c, t.facts.Arch)
	if err != nil {
		return nil, nil, err
	}
	f := t.facts
	f.Store = make(map[string]string, len(arts))
	for _, a := range arts {
		f.Store[string(a.Name)] = path.Join(node.StoreDir, a.ID)
	}
	origin := generation.Origin{Kind: t.input.Origin, Agent: h.Version}
	g, err := generation.New(c, t.received, f, node.Render(c, f), origin)
	return &g, arts, err
}

// withVersion fills in the version of Kubernetes that the owner left open, and with it those that
// depend on it.
func (h *home) withVersion(ctx context.Context, t *target) (config.Config, error) {
	c := t.input.Config
	if c.Kubernetes.Version != "" {
		return c, nil
	}
	server, err := h.serverVersion(ctx, t)
	if err != nil {
		return c, fmt.Errorf("%w; or set kubernetes.version", err)
	}
	version, err := release.KubernetesFor(server)
	if err != nil {
		return c, fmt.Errorf("cannot choose a version of Kubernetes: %w; set kubernetes.version", err)
	}
	c, warnings, err := c.WithKubernetes(version)
	for _, w := range warnings {
		h.warn("%s", w)
	}
	return c, err
}

// withPodNetwork has the pods of a machine that joins reach the cluster's pods with their own
// addresses, where that network is left open and Azure was asked for the cluster. A join that was
// begun before has what Azure said then. A node that is applied stays as it is.
func (h *home) withPodNetwork(t *target, c config.Config) config.Config {
	if c.CNI.NonMasqueradeCIDRs != nil || h.saved.Applied != nil {
		return c
	}
	_, same := t.locator.proved(c)
	switch {
	case t.locator.asked != nil:
		c.CNI.NonMasqueradeCIDRs = slices.Clone(t.locator.asked.PodCIDRs)
		if own := c.CNI.PodCIDR; own != "" { // then pods have no address of the other family
			c.CNI.NonMasqueradeCIDRs = slices.DeleteFunc(c.CNI.NonMasqueradeCIDRs,
				func(cidr string) bool { return strings.Contains(cidr, ":") != strings.Contains(own, ":") })
		}
	case same:
		c.CNI.NonMasqueradeCIDRs = slices.Clone(h.saved.Live.Config.CNI.NonMasqueradeCIDRs)
	}
	return c
}

// serverVersion asks the cluster for its version, and Azure where the cluster does not say.
func (h *home) serverVersion(ctx context.Context, t *target) (string, error) {
	if t.server != "" {
		return t.server, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := h.joinClient(ctx, t.input.Config, t.at)
	if err == nil {
		defer client.Close()
		t.server, err = client.ServerVersion(ctx)
	}
	if err != nil && t.locator.asked != nil && t.locator.asked.Version != "" {
		t.server, err = t.locator.asked.Version, nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell the version of the API server: %w", err)
	}
	return t.server, nil
}

// artifacts resolves the artifacts of a configuration to digests.
func (h *home) artifacts(
	ctx context.Context, c config.Config, arch string,
) ([]artifact.Artifact, error) {
	return artifact.Resolve(ctx, h.source(c), specs(c, arch), c.Artifacts.Overrides)
}

func (h *home) source(c config.Config) artifact.Source {
	s := artifact.NewSource(c.Artifacts, h.Client(c.ProxyFunc()))
	s.Progress = h.beat
	return s
}

// specs lists the artifacts of a configuration.
func specs(c config.Config, arch string) []artifact.Spec {
	k8s := func(name artifact.Name) artifact.Spec {
		url := c.Kubernetes.BinaryURL(string(name), arch)
		return artifact.Spec{Name: name, Version: c.Kubernetes.Version, Arch: arch, URL: url}
	}
	return []artifact.Spec{
		{Name: artifact.Containerd, Version: c.Containerd.Version, Arch: arch},
		k8s(artifact.Kubelet),
		{Name: artifact.Runc, Version: c.Runc.Version, Arch: arch, URL: c.Runc.BinaryURL(arch)},
		{Name: artifact.CNIPlugins, Version: c.CNI.Version, Arch: arch},
		k8s(artifact.Kubectl),
		k8s(artifact.Kubeadm),
		{Name: artifact.NPD, Version: c.NPD.Version, Arch: arch},
	}
}

// sameNode refuses to give the Node another name: kubelet's state of the one must not become the
// other's.
func (h *home) sameNode(c config.Config) error {
	if h.saved.Live == nil || !h.saved.Joined() ||
		h.saved.Live.Config.Agent.NodeName == c.Agent.NodeName {
		return nil
	}
	return fmt.Errorf("cannot become Node %s: this machine is Node %s; run "+
		"`aks-flex-node unbootstrap` first", c.Agent.NodeName, h.saved.Live.Config.Agent.NodeName)
}

// bindingsFor are the bindings of a target: those that were proved, with what it changes. While a
// cluster replaces its CA, the new and the former certificates are accepted, but none of before.
func (h *home) bindingsFor(t *target) saved.Bindings {
	b := h.saved.Bindings
	if !b.Joined { // nothing that a join has learned is proved, be it of another cluster
		b = saved.Bindings{Bindings: node.Bindings{Server: t.at.Server, CA: t.at.CA}}
	} else if t.at != h.saved.At() {
		switch next := saved.Unite(t.at.CA, b.CA); {
		case saved.Without(t.at.CA, b.CA) != "": // a new one
			b.Server, b.CA, b.Rebound = t.at.Server, saved.Unite(t.at.CA, b.CurrentCA()), true
		case next != saved.Unite(b.CA, "") || t.at.Server != b.Server:
			b.Server, b.CA, b.Rebound = t.at.Server, next, true
		}
	}
	if b.Joined || t.input.Config.CNI.PodCIDR != "" {
		b.PodCIDRs = h.subnets(t.input.Config)
	}
	b.ForeignCNI = foreignNetworks(t.seen.CNIConfigs)
	b.Program = h.Program
	return b
}

// subnets are the pod subnets of a node: those of its configuration, else those that the cluster
// has allocated; nil when these are not known.
func (h *home) subnets(c config.Config) []string {
	switch {
	case c.CNI.PodCIDR != "":
		return []string{c.CNI.PodCIDR}
	case h.saved.Applied != nil && h.saved.Applied.Config.CNI.PodCIDR != "":
		return nil
	}
	return h.saved.Bindings.PodCIDRs
}

// foreignNetworks are the network configurations that are not ours.
func foreignNetworks(configs []string) []string {
	return slices.DeleteFunc(slices.Clone(configs), func(name string) bool {
		return name == node.ConflistName
	})
}
