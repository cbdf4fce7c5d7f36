package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

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

// Target describes the node of a configuration, before its generation is known.
type Target struct {
	Input     Input
	Received  string
	seen      host.Facts
	facts     node.Facts // without Store
	unchanged bool       // the applied generation is from the same document, on the same machine
	Locator   *access.Locator
	At        inspect.Cluster
	moved     bool            // the API server has another address or CA than the proved one
	server    string          // the cluster's version, "" if it was not requested
	standing  bool            // the target is the applied node, whatever document is wanted
	Waits     *health.Waiting // the reason why the change may not begin yet; nil if it may
	Daemon    bool            // no person has asked for it
}

// Aim determines the target of a configuration, from this machine alone.
func Aim(ctx context.Context, h *Home, in Input) (t *Target, err error) {
	document := in.Document
	if document == nil {
		document = in.Config.Reveal()
	}
	t = &Target{
		Input: in, Received: state.Digest(string(document)), Locator: NewLocator(h), At: h.Saved.At(),
	}
	return t, t.look(ctx, h)
}

// aimAgain returns a target for the current machine, keeping the network's answers.
func aimAgain(ctx context.Context, h *Home, before *Target) (*Target, error) {
	t := *before
	t.Locator = NewLocator(h)
	t.Locator.Asked, t.Locator.Again = before.Locator.Asked, before.Locator.Again
	return &t, t.look(ctx, h)
}

// look reads the facts of the machine.
func (t *Target) look(ctx context.Context, h *Home) (err error) {
	c := t.Input.Config
	if t.seen, err = h.Agent.Machine.Facts(ctx, inspect.Query(h.Node, c)); err != nil {
		return err
	}
	swaps := slices.Clone(t.seen.SwapUnits)
	// Masked swap is no longer visible.
	for _, item := range inspect.StandingSwap(h.Node, config.Config{}) {
		swaps = append(swaps, item.Resource.Key().Name())
	}
	slices.Sort(swaps)
	t.facts = node.Facts{
		Arch: t.seen.Arch, ResolvConf: t.seen.ResolvConf, SwapUnits: slices.Compact(swaps),
		Processors: t.seen.CPUs, Memory: t.seen.MemoryBytes,
		HostName: t.seen.HostName, StaticName: t.seen.StaticName,
		NvidiaRuntime:    t.seen.NvidiaRuntime,
		MetadataResolver: slices.Contains(t.seen.Resolvers, node.MetadataAddress),
		Advertised:       advertised(h, t.seen.Advertised),
		Firewalls:        managedFirewalls(h, c, t.seen),
	}
	t.unchanged = t.standing || h.Saved.Applied != nil && h.Saved.Applied.Received == t.Received &&
		sameMachine(h, c, t.facts)
	return nil
}

// sameMachine reports whether the machine, and its name if kubelet uses that, are the same. The
// reserved memory, up to a quarter, must fit into a smaller machine.
func sameMachine(h *Home, c config.Config, f node.Facts) bool {
	was, name := h.Saved.Applied.Facts, c.Agent.NodeName
	return was.NvidiaRuntime == f.NvidiaRuntime && (was.Renames(name) || !f.Renames(name)) &&
		was.Arch == f.Arch && was.ResolvConf == f.ResolvConf && f.Memory >= was.Memory/2 &&
		was.MetadataResolver == f.MetadataResolver &&
		slices.Equal(was.SwapUnits, f.SwapUnits) && slices.Equal(was.Firewalls, f.Firewalls)
}

// advertised adds the interfaces on which an earlier run made the kernel accept router
// advertisements. They do not make it another machine: without IPv6 forwarding they have no effect.
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

// resolve renders a target. It reads unset values from the network, and writes nothing.
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
	if t.Input.Origin == "url" { // only now all is known, and the policy may have changed
		located := c
		located.Node.Kubelet.ServerURL = t.At.Server // Azure may have named it
		if err := permitted(h, located); err != nil {
			return nil, nil, err
		}
	}
	wanted := artifact.Wanted(c, t.facts.Arch)
	arts, err := artifact.Resolve(ctx, source(h, c), wanted, c.Artifacts.Overrides)
	if err != nil {
		return nil, nil, err
	}
	f, list := rendered(h, t, c, arts)
	origin := generation.Origin{Kind: t.Input.Origin, Agent: h.Version}
	g, err := generation.New(c, t.Received, f, list, origin)
	return &g, arts, err
}

// rendered renders a configuration. What another release renders in another way, or for another
// size of the machine, may restart services: it waits for a change that may do so.
func rendered(
	h *Home, t *Target, c config.Config, arts []artifact.Artifact,
) (node.Facts, state.Desired) {
	f, applied := t.facts, h.Saved.Applied
	f.Store = make(map[string]string, len(arts))
	keeps := applied != nil && !applied.Config.Disturbs(c)
	if keeps {
		maps.Copy(f.Store, applied.Facts.Store) // what stays may lead there
	}
	if keeps && sameMachine(h, c, f) {
		f.Processors, f.Memory = applied.Facts.Processors, applied.Facts.Memory
	}
	for _, a := range arts {
		f.Store[string(a.Name)] = path.Join(node.StoreDir, a.ID)
	}
	list := node.Render(c, f)
	if keeps {
		list = applied.Node.Amend(node.Render(applied.Config, applied.Facts), list)
	}
	return f, list
}

// withVersion fills in an unset version of Kubernetes and the versions that depend on it.
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

// withPodNetwork fills in the cluster's pod network on a joining machine, if it is unset and Azure
// was asked. A join that had already begun keeps Azure's earlier answer.
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

// withAdmin adds the administrator's kubeconfig, the node's or else Azure's, if it is wanted.
func withAdmin(
	ctx context.Context, h *Home, asking config.Config, to *generation.Generation,
) (err error) {
	if !to.Config.Node.AdminKubeconfig {
		return nil
	}
	secrets := h.Saved.Secrets[to.ID]
	if secrets.AdminKubeconfig = inspect.Admin(h.Node); secrets.AdminKubeconfig == "" {
		if secrets.AdminKubeconfig, err = askAzure(h).AdminKubeconfig(ctx, asking); err != nil {
			return err
		}
	}
	h.Saved.Secrets[to.ID] = secrets
	return nil
}

// withDNS fills in the DNS service's address, from Azure or else the cluster. It never guesses: a
// node with a wrong address is Ready, but its pods resolve no names.
func withDNS(ctx context.Context, h *Home, t *Target, c config.Config) (config.Config, error) {
	if c.Node.Kubelet.DNSServiceIP != "" {
		return c, nil
	}
	if _, same := t.Locator.Proved(c); same && h.Saved.Live.Config.Node.Kubelet.DNSServiceIP != "" {
		return c.WithDNS(h.Saved.Live.Config.Node.Kubelet.DNSServiceIP)
	}
	address, err := dnsOfAzure(ctx, t, c)
	if err == nil {
		return c.WithDNS(address)
	}
	// The cluster answers a node and a token that may join as one.
	address, clusterErr := inspect.Ask(ctx, h.Node, access.JoinClient, c, t.At,
		func(client *kube.Client, ctx context.Context) (string, error) {
			service, err := client.Service(ctx, "kube-system", "kube-dns")
			return service.Spec.ClusterIP, err
		})
	if clusterErr == nil {
		return c.WithDNS(address)
	}
	return c, fmt.Errorf("cannot determine the address of the cluster's DNS service: set "+
		"node.kubelet.dnsServiceIP to it (kubectl get service --namespace kube-system kube-dns): %w",
		errors.Join(err, clusterErr))
}

func dnsOfAzure(ctx context.Context, t *Target, c config.Config) (string, error) {
	if c.Azure.AuthMode() == config.AuthBootstrapToken {
		return "", errors.New("a bootstrap token gives no access to Azure")
	}
	said, err := t.Locator.Ask(ctx, c)
	if err == nil && said.DNSServiceIP == "" {
		err = errors.New("its networkProfile in Azure does not include it")
	}
	return said.DNSServiceIP, err
}

// ServerVersion returns the cluster's version, from the cluster or else from Azure.
func ServerVersion(ctx context.Context, h *Home, t *Target) (_ string, err error) {
	if t.server != "" {
		return t.server, nil
	}
	t.server, err = inspect.Ask(ctx, h.Node, access.JoinClient, t.Input.Config, t.At,
		(*kube.Client).ServerVersion)
	if err != nil && t.Locator.Asked != nil && t.Locator.Asked.Version != "" {
		t.server, err = t.Locator.Asked.Version, nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot determine the version of the API server: %w", err)
	}
	return t.server, nil
}

func source(h *Home, c config.Config) artifact.Source {
	s := artifact.NewSource(c.Artifacts, h.Agent.Client(c.ProxyFunc()))
	s.Progress, s.Trusted = h.Alive, h.TrustedFile
	return s
}

// bindingsFor returns the proved bindings with a target's changes. While a cluster replaces its CA,
// the new and the current certificates are accepted, but no older ones.
func bindingsFor(h *Home, t *Target) saved.Bindings {
	b := h.Saved.Bindings
	if !b.Joined { // nothing learned by a join is proved; it may be of another cluster
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
