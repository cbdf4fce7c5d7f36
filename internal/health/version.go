package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/release"
)

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
	all := slices.DeleteFunc([]string{of("kubelet", e.Wanted.Kubernetes.Version),
		of("containerd", e.Wanted.Containerd.Version), of("runc", e.Wanted.Runc.Version),
	}, func(text string) bool { return text == "" })
	return when(len(all) > 0, OwnerConfiguration, reason, strings.Join(all, "; "))
}
