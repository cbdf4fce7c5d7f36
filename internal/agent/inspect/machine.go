package inspect

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Query returns the query for all facts about this machine. Our own units are not rivals.
func Query(h *Node, c config.Config) host.Query {
	touched := h.ledger.Ledger().Keys()
	rivals := append([]string{node.ContainerdUnit, node.KubeletUnit}, h.Reader.Rivals()...)
	units := slices.DeleteFunc(rivals, func(unit string) bool {
		return slices.Contains(touched, state.UnitKey(unit)) ||
			slices.Contains(touched, state.PathKey(node.UnitFile(unit)))
	})
	return host.Query{
		CNIConfDir: c.Paths.CNI.ConfDir, KubeletDir: c.Paths.Kubernetes.KubeletDir, Units: units,
		Filesystems: []string{"/var/lib", "/opt"},
		Firewalls:   c.Network.Firewall != config.FirewallIgnore,
	}
}

// StandingSwap returns the masked swap units as wanted. They stay masked as long as the machine is
// a node without swap: kubelet does not start otherwise.
func StandingSwap(h *Node, c config.Config) state.Desired {
	if c.Node.Kubelet.KeepsSwap() {
		return nil
	}
	return h.ledger.Ledger().As(func(e state.Entry) bool {
		unit, ok := e.Ours.Resource.(state.Unit)
		return ok && unit.Enabled == state.Masked
	})
}

// Subnets returns the configured pod subnets of a node, or those that the cluster has allocated.
func Subnets(h *Node, c config.Config) []string {
	switch {
	case c.CNI.PodCIDR != "":
		return []string{c.CNI.PodCIDR}
	case h.Saved.Applied != nil && h.Saved.Applied.Config.CNI.PodCIDR != "":
		return nil
	}
	return h.Saved.Bindings.PodCIDRs
}

// engines matches the network configurations of container engines, such as 87-podman.conflist.
var engines = regexp.MustCompile("podman|nerdctl|crio|containerd-net")

// ForeignNetworks returns the configurations of the cluster's own pod network. containerd reads
// only the first file, so those after ours have no effect.
func ForeignNetworks(configs []string) []string {
	return slices.DeleteFunc(slices.Clone(configs), func(name string) bool {
		return name >= node.ConflistName || engines.MatchString(name)
	})
}

// Foreign returns the ForeignNetworks on the machine, or the known ones if it finds none.
func Foreign(h *Node, c config.Config, known []string) []string {
	configs, _ := h.Reader.CNIConfigs(c.Paths.CNI.ConfDir)
	if found := ForeignNetworks(configs); len(found) > 0 {
		return found
	}
	return known
}

func firewallEvidence(
	ctx context.Context, h *Node, c config.Config, seen host.Facts,
) health.Answer[[]health.Firewall] {
	if c.Network.Firewall == config.FirewallIgnore {
		return health.Answer[[]health.Firewall]{}
	}
	if seen.FirewallErr != nil {
		return health.Answered[[]health.Firewall](nil, seen.FirewallErr)
	}
	var closed []health.Firewall
	bound := node.Bindings{ForeignCNI: ForeignNetworks(seen.CNIConfigs)}
	for _, found := range seen.Firewalls {
		f := health.Firewall{Name: found.Name}
		for _, item := range node.Bind(node.Openings(found), bound) {
			is, err := h.Reader.Observe(ctx, item.Resource.Key())
			if err != nil {
				return health.Answered[[]health.Firewall](nil, err)
			}
			if opening := item.Resource.(state.Opening); !state.Satisfies(is, opening) {
				f.Closed = append(f.Closed, opening.Rule)
				f.Commands = append(f.Commands, h.Reader.OpeningCommands(opening)...)
			}
		}
		if len(f.Closed) > 0 {
			closed = append(closed, f)
		}
	}
	return health.Answered(closed, nil)
}

// metadataEvidence tries to connect from a pod's network to the metadata service.
func metadataEvidence(
	ctx context.Context, h *Node, c config.Config,
) health.Answer[health.Metadata] {
	joining := h.Saved.Transition != nil && h.Saved.Transition.Kind == transition.Join
	if c.Network.Metadata == config.MetadataAllow || joining {
		return health.Answer[health.Metadata]{}
	}
	table, err := h.Reader.Observe(ctx, state.Table{Name: node.MetadataTable}.Key())
	if err != nil {
		return health.Answered(health.Metadata{}, err)
	}
	loaded, _ := table.(state.Table)
	m := health.Metadata{Guarded: loaded.Rules > 0}
	err = h.Reader.DialFromPod(ctx, netip.AddrPortFrom(netip.MustParseAddr(node.MetadataAddress), 80))
	m.Tried = !errors.Is(err, host.ErrNoPod)
	m.Reached = err == nil
	m.Refused = errors.Is(err, unix.ECONNREFUSED)
	return health.Answered(m, nil)
}

// Upkeep adds evidence of the parts of a machine that wear out or change.
func Upkeep(ctx context.Context, h *Node, at Cluster, seen host.Facts, e *health.Evidence) {
	c := e.Wanted.Config
	u := &health.Upkeep{
		Upkeep: h.Reader.Upkeep(ctx), HostNames: hostNames(h, c, seen), CA: at.CA,
		Registries: access.ImageFailures(h, time.Now()),
	}
	if h.Saved.Applied != nil {
		for _, swap := range seen.Swaps {
			u.Swaps = append(u.Swaps, swap.Name)
		}
	}
	if h.Saved.Joined() && !c.Azure.ShowsToken() {
		u.Client = health.Answered(access.KubeletValidity(h, c))
	}
	if sp := principal(c); sp != nil {
		u.Principal = health.Answered(access.PrincipalValidity(*sp))
	}
	e.Upkeep = u
}

// hostNames returns the host names from which kubelet takes its Node's name.
func hostNames(h *Node, c config.Config, seen host.Facts) []string {
	if g := cmp.Or(h.Saved.Applied, h.Saved.Live); g == nil || g.Facts.Renames(c.Agent.NodeName) {
		return nil
	}
	return slices.DeleteFunc([]string{seen.HostName, seen.StaticName},
		func(name string) bool { return name == "" })
}
