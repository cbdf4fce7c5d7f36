package change

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Target describes the node of a configuration, before it is known whether it is a new one.
type Target struct {
	Input Input
	// Received is the digest of the document.
	Received string
	seen     host.Facts
	facts    node.Facts // without Store
	// unchanged tells that the applied generation came from the same document, on the same machine.
	unchanged bool
	Locator   *access.Locator
	At        inspect.Cluster
	// moved tells that the API server has another address or CA than was proved.
	moved bool
	// server is the cluster's version, "" when it was not asked.
	server string
	// standing reports that the target is what is applied, whatever document is wanted.
	standing bool
	// Waits says why the change to it may not begin yet; nil where it may.
	Waits *health.Waiting
	// Daemon tells that no person has asked for it.
	Daemon bool
}

// Aim finds out what a configuration asks for, from this machine alone.
func Aim(ctx context.Context, h *Home, in Input) (*Target, error) {
	received, err := in.digest()
	if err != nil {
		return nil, err
	}
	t := &Target{Input: in, Received: received, Locator: NewLocator(h), At: h.Saved.At()}
	if t.seen, err = h.Agent.Machine.Facts(ctx, inspect.Query(h.Node, in.Config)); err != nil {
		return nil, err
	}
	t.facts = node.Facts{
		Arch: t.seen.Arch, ResolvConf: t.seen.ResolvConf, SwapUnits: slices.Clone(t.seen.SwapUnits),
		Processors: t.seen.CPUs, Memory: t.seen.MemoryBytes,
		HostName: t.seen.HostName, StaticName: t.seen.StaticName,
		NvidiaRuntime:    t.seen.NvidiaRuntime,
		MetadataResolver: slices.Contains(t.seen.Resolvers, node.MetadataAddress),
	}
	rememberedSwap(h, &t.facts)
	t.facts.Advertised = advertised(h, t.seen.Advertised)
	t.facts.Firewalls = managedFirewalls(h, in.Config, t.seen)
	t.unchanged = h.Saved.Applied != nil && h.Saved.Applied.Received == t.Received &&
		sameMachine(h, in.Config, t.facts)
	return t, nil
}

// aimAgain returns a previous target for the machine as it is now. What the network has said about
// it remains.
func aimAgain(ctx context.Context, h *Home, before *Target) (*Target, error) {
	t, err := Aim(ctx, h, before.Input)
	if err != nil {
		return nil, err
	}
	if t.standing = before.standing; t.standing {
		t.Received, t.unchanged = before.Received, true
	}
	t.Waits = before.Waits
	t.Locator.Asked, t.Locator.Again = before.Locator.Asked, before.Locator.Again
	t.At, t.moved, t.server, t.Daemon = before.At, before.moved, before.server, before.Daemon
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

// sameMachine reports whether the machine still is as the applied generation was rendered for.
// One whose name kubelet took, and which has another name now, is not.
func sameMachine(h *Home, c config.Config, f node.Facts) bool {
	was, name := h.Saved.Applied.Facts, c.Agent.NodeName
	return was.NvidiaRuntime == f.NvidiaRuntime && (was.Renames(name) || !f.Renames(name)) &&
		was.Arch == f.Arch && was.ResolvConf == f.ResolvConf &&
		was.MetadataResolver == f.MetadataResolver &&
		slices.Equal(was.SwapUnits, f.SwapUnits) &&
		slices.Equal(was.Firewalls, f.Firewalls)
}

// rememberedSwap adds the swap units that an earlier run has masked: they are no longer seen on the
// machine, but the ledger remembers them.
func rememberedSwap(h *Home, f *node.Facts) {
	for _, item := range inspect.StandingSwap(h.Node, config.Config{}) {
		f.SwapUnits = append(f.SwapUnits, item.Resource.Key().Name())
	}
	slices.Sort(f.SwapUnits)
	f.SwapUnits = slices.Compact(f.SwapUnits)
}

// advertised adds to the interfaces on which the kernel would no longer listen to routers those on
// which an earlier run has told it to go on. They make no other machine of it: without forwarding
// IPv6 nothing follows from them, and while it forwards no other is seen.
func advertised(h *Home, seen []string) []string {
	list := slices.Clone(seen)
	for _, e := range h.Engine.Journal.Ledger().Entries {
		if ours, ok := e.Ours.Resource.(state.Sysctl); ok && ours.Advertised() != "" {
			list = append(list, ours.Advertised())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// resolve renders the generation that a target asks for. It reads from the network what the
// configuration leaves open, and writes nothing.
func resolve(
	ctx context.Context, h *Home, t *Target,
) (*generation.Generation, []artifact.Artifact, error) {
	c, err := withVersion(ctx, h, t)
	if err != nil {
		return nil, nil, err
	}
	c = withPodNetwork(h, t, c)
	if c, err = withDNS(ctx, h, t, c); err != nil {
		return nil, nil, err
	}
	if t.Input.Origin == "url" { // the version is known only now, and the policy may be another one
		if err := permitted(h, c); err != nil {
			return nil, nil, err
		}
	}
	arts, err := artifacts(ctx, h, c, t.facts.Arch)
	if err != nil {
		return nil, nil, err
	}
	f := t.facts
	f.Store = make(map[string]string, len(arts))
	for _, a := range arts {
		f.Store[string(a.Name)] = path.Join(node.StoreDir, a.ID)
	}
	origin := generation.Origin{Kind: t.Input.Origin, Agent: h.Version}
	g, err := generation.New(c, t.Received, f, node.Render(c, f), origin)
	return &g, arts, err
}

// withVersion fills in Kubernetes' version where left open, and with it those that depend on it.
func withVersion(ctx context.Context, h *Home, t *Target) (config.Config, error) {
	c := t.Input.Config
	if c.Kubernetes.Version != "" {
		return c, nil
	}
	server, err := ServerVersion(ctx, h, t)
	if err != nil {
		return c, fmt.Errorf("%w; or set kubernetes.version", err)
	}
	c, warnings, err := c.WithKubernetesFor(server)
	for _, w := range warnings {
		h.Warn("%s", w)
	}
	return c, err
}

// withPodNetwork has the pods of a machine that joins reach the cluster's pods with their own
// addresses, where that network is left open and Azure was asked for the cluster. A join that was
// begun before has what Azure said then. A node that is applied stays as it is.
func withPodNetwork(h *Home, t *Target, c config.Config) config.Config {
	if c.CNI.NonMasqueradeCIDRs != nil || h.Saved.Applied != nil {
		return c
	}
	_, same := t.Locator.Proved(c)
	switch {
	case t.Locator.Asked != nil:
		c.CNI.NonMasqueradeCIDRs = slices.Clone(t.Locator.Asked.PodCIDRs)
		if own := c.CNI.PodCIDR; own != "" { // then pods have no address of the other family
			c.CNI.NonMasqueradeCIDRs = slices.DeleteFunc(c.CNI.NonMasqueradeCIDRs,
				func(cidr string) bool { return strings.Contains(cidr, ":") != strings.Contains(own, ":") })
		}
	case same:
		c.CNI.NonMasqueradeCIDRs = slices.Clone(h.Saved.Live.Config.CNI.NonMasqueradeCIDRs)
	}
	return c
}

// ServerVersion asks the cluster for its version, and Azure where the cluster does not say.
func ServerVersion(ctx context.Context, h *Home, t *Target) (string, error) {
	if t.server != "" {
		return t.server, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := access.JoinClient(ctx, h.Node, t.Input.Config, t.At)
	if err == nil {
		defer client.Close()
		t.server, err = client.ServerVersion(ctx)
	}
	if err != nil && t.Locator.Asked != nil && t.Locator.Asked.Version != "" {
		t.server, err = t.Locator.Asked.Version, nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell the version of the API server: %w", err)
	}
	return t.server, nil
}

// artifacts resolves the artifacts of a configuration to digests.
func artifacts(
	ctx context.Context, h *Home, c config.Config, arch string,
) ([]artifact.Artifact, error) {
	return artifact.Resolve(ctx, source(h, c), artifact.Wanted(c, arch), c.Artifacts.Overrides)
}

func source(h *Home, c config.Config) artifact.Source {
	s := artifact.NewSource(c.Artifacts, h.Agent.Client(c.ProxyFunc()))
	s.Progress, s.Trusted = h.Alive, h.TrustedFile
	return s
}

// sameNode refuses another name of the Node: kubelet's state of one must not become another's.
func sameNode(h *Home, c config.Config) error {
	if h.Saved.Live == nil || !h.Saved.Joined() ||
		h.Saved.Live.Config.Agent.NodeName == c.Agent.NodeName {
		return nil
	}
	return fmt.Errorf("cannot become Node %s: this machine is Node %s; run "+
		"`aks-flex-node unbootstrap` first", c.Agent.NodeName, h.Saved.Live.Config.Agent.NodeName)
}

// bindingsFor returns the bindings of a target: those that were proved, with what it changes. While
// a cluster replaces its CA, the new and the current certificates are accepted, but no older ones.
func bindingsFor(h *Home, t *Target) saved.Bindings {
	b := h.Saved.Bindings
	if !b.Joined { // nothing that a join has learned is proved, be it of another cluster
		b = saved.Bindings{Bindings: node.Bindings{Server: t.At.Server, CA: t.At.CA}}
	} else if t.At != h.Saved.At() {
		switch next := kube.Unite(t.At.CA, b.CA); {
		case kube.Without(t.At.CA, b.CA) != "": // a new one
			b.Server, b.CA, b.Rebound = t.At.Server, kube.Unite(t.At.CA, b.CurrentCA()), true
		case next != kube.Unite(b.CA, "") || t.At.Server != b.Server:
			b.Server, b.CA, b.Rebound = t.At.Server, next, true
		}
	}
	if b.Joined || t.Input.Config.CNI.PodCIDR != "" {
		b.PodCIDRs = inspect.Subnets(h.Node, t.Input.Config)
	}
	b.ForeignCNI = inspect.ForeignNetworks(t.seen.CNIConfigs)
	b.Program = h.Program
	return b
}

// downloads translates download events into progress.
func downloads(a *Agent, e artifact.Event) {
	name := e.Artifact.String()
	switch e.Kind {
	case artifact.Progress:
		a.Emit(progress.Event{Kind: progress.Bytes, Name: name, Done: e.Bytes, Total: e.Total})
	case artifact.Retrying:
		text := fmt.Sprintf("%v; trying again", e.Err)
		a.Emit(progress.Event{Kind: progress.Retry, Name: name, Text: text})
	case artifact.Done:
		a.Emit(progress.Event{Kind: progress.Fetched, Name: name, Total: e.Artifact.Size, Took: e.Took})
	}
}
