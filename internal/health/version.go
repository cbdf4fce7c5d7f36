package health

import (
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// versions returns the names and versions that are judged.
func (w Wanted) versions() [][2]string {
	return [][2]string{{"kubelet", w.Kubernetes.Version}, {"containerd", w.Containerd.Version},
		{"runc", w.Runc.Version}}
}

// notVulnerable: no release is known to let a container break out.
func notVulnerable(e Evidence) Condition { return said(e, "Vulnerable", e.Wanted.Flaw) }

// versionsSupported: each release branch still gets fixes.
func versionsSupported(e Evidence) Condition {
	return said(e, "EndOfSupport", func(name, version string) string {
		if day := release.SupportEnded(name, version, e.Today); day != "" {
			return fmt.Sprintf("%s %s gets no fixes after %s: take a newer branch", name, version, day)
		}
		return ""
	})
}

// said fails with everything that of says of the versions of the node.
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
