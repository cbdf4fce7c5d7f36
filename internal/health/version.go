package health

import (
	"strings"
)

// versions are the versions of a configuration about which more is known than their digests.
func (w Wanted) versions() [][2]string {
	return [][2]string{{"kubelet", w.Kubernetes.Version}, {"containerd", w.Containerd.Version},
		{"runc", w.Runc.Version}}
}

// notVulnerable: no release is known to let a container break out.
func notVulnerable(e Evidence) Condition {
	return said(e, "Vulnerable", e.Wanted.Flaw)
}

// said fails with what is said of the versions of the node.
func said(e Evidence, reason string, of func(name, version string) string) Condition {
	var all []string
	for _, v := range e.Wanted.versions() {
		if text := of(v[0], v[1]); text != "" {
			all = append(all, text)
		}
	}
	if len(all) > 0 {
		return fails(OwnerConfiguration, reason, strings.Join(all, "; "))
	}
	return holds()
}
