package node

import (
	"io/fs"
	"path"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// foundation claims the directories that are used before all others: for artifacts. The log's
// directory is no resource: the log also records refusals, and outlives the node.
func foundation(p *part) {
	p.add(owned(OptDir, 0o755), owned(StoreDir, 0o755))
}

// directories creates every directory that a later step writes to. Writing a file never creates its
// parent: a directory made in passing would escape the ledger.
func directories(p *part) {
	foundation(p)
	paths := p.config.Paths
	p.add(
		shared(unitDir+"/multi-user.target.wants"),
		shared("/etc/sysctl.d"),
		shared("/etc/modules-load.d"),
		shared("/etc/tmpfiles.d"),
		shared(distro.Needrestart),
		shared(distro.Needrestart+"/conf.d"),
	)
	if p.config.Node.Kubelet.EndsPods() {
		p.add(shared(logindDir))
	}
	p.add(sharedTree(
		binDir, sbinDir,
		paths.Kubernetes.ConfigDir, paths.Kubernetes.CertsDir,
		paths.Kubernetes.ManifestsDir, paths.Kubernetes.VolumePluginDir,
		p.kubeletDropIns(),
		paths.CNI.BinDir, paths.CNI.ConfDir,
		"/etc/containerd/conf.d", "/etc/containerd/certs.d",
		npdConfDir,
	)...)
	p.add(
		owned(paths.Kubernetes.KubeletDir, 0o750, "pods", "plugins"),
		owned("/var/lib/cni", 0o755),
		owned("/var/log/pods", 0o755),
		owned("/var/log/containers", 0o755),
	)
}

// owned returns a directory whose contents are ours alone. Our services may mount below it.
func owned(path string, mode fs.FileMode, mounts ...string) state.Dir {
	return state.Dir{Path: path, Mode: mode, Purge: true, Mounts: mounts}
}

// shared returns a directory that others use too.
func shared(path string) state.Dir { return state.Dir{Path: path, Mode: 0o755} }

// sharedTree returns the given directories and their parents, except those on every machine.
func sharedTree(paths ...string) []state.Resource {
	declared := map[string]bool{
		"/": true, "/etc": true, "/opt": true, "/usr": true, "/usr/local": true,
		"/var": true, "/var/lib": true, "/var/log": true,
	}
	var dirs []state.Resource
	for _, p := range paths {
		at := len(dirs)
		for dir := p; !declared[dir]; dir = path.Dir(dir) {
			declared[dir] = true
			dirs = slices.Insert(dirs, at, state.Resource(shared(dir)))
		}
	}
	return dirs
}
