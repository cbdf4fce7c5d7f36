package config

import (
	"fmt"
	"slices"
	"strings"
)

func pathRules() []rule {
	const allowed = "a clean absolute path of letters, digits and . _ + @ -, " +
		"which is no directory of the system itself"
	rules := []rule{{"agent.logDir", allowed, isDir}}
	for _, d := range directories(Config{}) {
		if d.path != "agent.logDir" {
			rules = append(rules, rule{d.path, allowed, isDir})
		}
	}
	return rules
}

// isDir tells whether s can be a directory of the node. Some are removed with all that is in them
// by unbootstrap, so that none may be one that the system or others have their files in.
func isDir(s string) bool {
	for _, alive := range []string{"/proc", "/sys", "/dev", "/boot"} {
		if inside(s, alive) {
			return false
		}
	}
	return isAbs(s) && strings.Count(s, "/") > 1 && !slices.Contains([]string{
		"/etc/systemd", "/etc/systemd/system", "/etc/sysctl.d", "/etc/modules-load.d", "/etc/ssl",
		"/etc/containerd",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share",
		"/usr/local", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib",
		"/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/tmp", "/var/run", "/var/mail",
		"/var/opt", "/run/systemd", "/run/lock", "/lib/systemd",
	}, s)
}

// directory is a directory of the node.
type directory struct {
	path, dir string
	// alone means that nobody else may have files in it.
	alone bool
}

func directories(c Config) []directory {
	k, n := c.Paths.Kubernetes, c.Paths.CNI
	return []directory{
		{path: "paths.kubernetes.configDir", dir: k.ConfigDir},
		{path: "paths.kubernetes.certsDir", dir: k.CertsDir},
		{path: "paths.kubernetes.manifestsDir", dir: k.ManifestsDir},
		{path: "paths.kubernetes.volumePluginDir", dir: k.VolumePluginDir},
		{path: "paths.kubernetes.kubeletDir", dir: k.KubeletDir, alone: true},
		{path: "paths.cni.binDir", dir: n.BinDir},
		{path: "paths.cni.confDir", dir: n.ConfDir},
		{path: "agent.logDir", dir: c.Agent.LogDir, alone: true},
	}
}

// ownDirs are the directories that this program uses under fixed names.
func ownDirs() []string {
	return []string{
		"/etc/aks-flex-node", "/var/lib/aks-flex-node", "/run/aks-flex-node", "/opt/aks-flex-node",
		"/var/lib/containerd", "/run/containerd", "/etc/containerd", "/etc/node-problem-detector",
	}
}

// checkDirs keeps directories apart that must not be one another's, nor contain one another.
func checkDirs(c Config, r *report) {
	dirs := directories(c)
	for i, d := range dirs {
		if r.spoiled(d.path) {
			continue
		}
		for _, own := range ownDirs() {
			if overlap(d.dir, own) {
				r.add(d.path, show(d.dir), "must lie apart from "+own+", which is in use already")
			}
		}
		for _, other := range dirs[:i] {
			clash := d.dir == other.dir || (d.alone || other.alone) && overlap(d.dir, other.dir)
			if clash && !r.spoiled(other.path) {
				r.add(d.path, show(d.dir),
					fmt.Sprintf("must lie apart from %s (%s)", other.path, other.dir))
			}
		}
	}
}

func overlap(a, b string) bool { return inside(a, b) || inside(b, a) }

// inside tells whether a clean path is dir or below it.
func inside(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
