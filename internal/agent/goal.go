package agent

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// goal resolves what c needs: facts of this machine, and the digests of the artifacts. It writes nothing.
func (s *session) goal(ctx context.Context, c config.Config) (*goal, error) {
	g := &goal{config: c}
	previous, _, ok, err := s.records.applied()
	if err != nil {
		return nil, err
	}
	if ok {
		g.applied = &previous
	}
	if err := s.facts(ctx, g); err != nil {
		return nil, err
	}
	if err := s.sameNode(g); err != nil {
		return nil, err
	}
	return g, s.resolve(ctx, g)
}

// lastHealthy is the goal that a machine has reached already.
func (s *session) lastHealthy(ctx context.Context) (*goal, error) {
	generation, c, ok, err := s.records.applied()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNoNode
	}
	g := &goal{config: c, facts: generation.Facts, applied: &generation}
	return g, nil
}

var errNoNode = errors.New("this machine is not a node: run `aks-flex-node bootstrap --config FILE` first")

// sameNode refuses to turn a node into another one: kubelet's state of the one must not meet the cluster of the other.
func (s *session) sameNode(g *goal) error {
	var join JoinState
	ok, err := s.records.load(joinFile, &join)
	if err != nil || !ok || !join.Joined {
		return err
	}
	switch name := g.config.Agent.NodeName; {
	case join.NodeName != name:
		return fmt.Errorf("cannot become Node %s: this machine is Node %s; run `aks-flex-node unbootstrap` first", name, join.NodeName)
	case join.Server != g.facts.Server:
		return fmt.Errorf("cannot join %s: this machine is a node of %s; run `aks-flex-node unbootstrap` first", g.facts.Server, join.Server)
	}
	return nil
}

// facts finds out what Render must know about this machine. What was masked or turned off by an earlier run is no longer seen on
// the host, but the ledger remembers it.
func (s *session) facts(ctx context.Context, g *goal) error {
	seen, err := s.Machine.Facts(ctx, query(g.config))
	if err != nil {
		return err
	}
	cluster, err := s.cluster(ctx, g.config)
	if err != nil {
		return err
	}
	g.facts = node.Facts{
		Arch:       seen.Arch,
		Server:     cluster.Server,
		CA:         cluster.CA,
		ResolvConf: seen.ResolvConf,
		PodCIDR:    g.config.CNI.PodCIDR,
		ForeignCNI: slices.DeleteFunc(slices.Clone(seen.CNIConfigs), func(name string) bool { return name == node.ConflistName }),
	}
	for _, swap := range seen.Swaps {
		g.facts.Swaps = append(g.facts.Swaps, swap.Name)
	}
	g.facts.SwapUnits = slices.Clone(seen.SwapUnits)
	s.rememberedSwap(&g.facts)
	if g.applied != nil && g.facts.PodCIDR == "" {
		g.facts.PodCIDR = g.applied.Facts.PodCIDR
	}
	if g.config.Azure.BootstrapToken == nil {
		g.facts.Program = s.Program
	}
	g.facts.Joined = s.joined(g.config)
	return nil
}

func query(c config.Config) host.Query {
	return host.Query{CNIConfDir: c.Paths.CNI.ConfDir, Filesystems: []string{"/var/lib", "/opt"}}
}

// rememberedSwap adds the swap that an earlier run took away.
func (s *session) rememberedSwap(f *node.Facts) {
	for _, e := range s.engine.Journal.Ledger().Entries {
		switch ours := e.Ours.Resource.(type) {
		case state.Swap:
			f.Swaps = append(f.Swaps, ours.Name)
		case state.Unit:
			if ours.Enabled == state.Masked {
				f.SwapUnits = append(f.SwapUnits, ours.Name)
			}
		}
	}
	slices.Sort(f.Swaps)
	slices.Sort(f.SwapUnits)
	f.Swaps, f.SwapUnits = slices.Compact(f.Swaps), slices.Compact(f.SwapUnits)
}

// joined tells whether the cluster has let this node in: kubelet needs nothing more to join.
func (s *session) joined(c config.Config) bool {
	if !s.credentialed(c) || !c.Azure.ShowsToken() {
		return s.credentialed(c)
	}
	var join JoinState
	ok, err := s.records.load(joinFile, &join)
	return err == nil && ok && join.Joined
}

// credentialed tells whether kubelet has a credential: a certificate that is good now, or the way to an identity's tokens.
func (s *session) credentialed(c config.Config) bool {
	dir := c.Paths.Kubernetes.KubeletDir
	if _, err := s.Machine.ReadFile(node.KubeconfigPath(dir)); err != nil {
		return false
	}
	if c.Azure.ShowsToken() {
		return true
	}
	data, err := s.Machine.ReadFile(path.Join(dir, "pki", "kubelet-client-current.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	block, _ := pem.Decode(data)
	if err != nil || block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && s.now().Before(cert.NotAfter) && cert.Subject.CommonName == "system:node:"+c.Agent.NodeName
}

// resolve finds the digests of the artifacts and with them their places in the store.
func (s *session) resolve(ctx context.Context, g *goal) error {
	arts, err := artifact.Resolve(ctx, s.source(g.config), specs(g.config, g.facts.Arch), g.config.Artifacts.Overrides)
	if err != nil {
		return err
	}
	g.artifacts = arts
	g.facts.Store = make(map[string]string, len(arts))
	for _, a := range arts {
		g.facts.Store[string(a.Name)] = path.Join(node.StoreDir, a.ID)
	}
	return nil
}

func (s *session) source(c config.Config) artifact.Source {
	return artifact.NewSource(c.Artifacts, s.Client(c.ProxyFunc()))
}

// specs lists the artifacts of a configuration.
func specs(c config.Config, arch string) []artifact.Spec {
	k8s := func(name artifact.Name) artifact.Spec {
		return artifact.Spec{Name: name, Version: c.Kubernetes.Version, Arch: arch, URL: c.Kubernetes.BinaryURL(string(name), arch)}
	}
	return []artifact.Spec{
		{Name: artifact.Containerd, Version: c.Containerd.Version, Arch: arch},
		k8s(artifact.Kubelet),
		{Name: artifact.Runc, Version: c.Runc.Version, Arch: arch, URL: c.Runc.URL},
		{Name: artifact.CNIPlugins, Version: c.CNI.Version, Arch: arch},
		k8s(artifact.Kubectl),
		k8s(artifact.Kubeadm),
		{Name: artifact.NPD, Version: c.NPD.Version, Arch: arch},
	}
}

// collect removes the artifacts that neither the node nor its previous generation refers to.
func (s *session) collect(g *goal) error {
	keep := make(map[string]bool)
	add := func(f node.Facts) {
		for _, dir := range f.Store {
			keep[path.Base(dir)] = true
		}
	}
	add(g.facts)
	for _, name := range []string{appliedFile, previousFile} {
		generation, _, ok, err := s.records.generation(name)
		if err != nil {
			return err
		}
		if ok {
			add(generation.Facts)
		}
	}
	ids := slices.Sorted(maps.Keys(keep))
	_, err := artifact.Collect(s.path(node.StoreDir), ids)
	return err
}
