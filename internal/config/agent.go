package config

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// What happens when the host is no longer as configured.
const (
	DriftReport = "report"
	DriftRepair = "repair"
	DriftOff    = "off"
)

// driftKinds are the kinds of things that drift, as their names begin with: path:/etc/x.
var driftKinds = []string{
	"path", "unit", "sysctl", "module", "swap", "package", "opening", "node", "store", "arc",
}

// DriftPolicyOf is what happens when a thing of a kind is no longer as configured.
func (a Agent) DriftPolicyOf(kind string) string {
	if policy, ok := a.DriftPolicies[kind]; ok {
		return policy
	}
	return a.DriftPolicy
}

// DetectsDrift reports whether anything is compared with the configuration at all.
func (a Agent) DetectsDrift() bool {
	return slices.ContainsFunc(driftKinds, func(kind string) bool {
		return a.DriftPolicyOf(kind) != DriftOff
	})
}

// maxNodeName is shorter than a DNS name may be, since the name is also the value of the label
// kubernetes.io/hostname.
const maxNodeName = 63

// isArtifact reports whether a key of artifacts.overrides names an artifact, or a version of one.
func isArtifact(key string) bool {
	name, version, one := strings.Cut(key, "@")
	_, parsed := release.Parse(version)
	known := slices.Contains(release.Names(), name)
	return known && (!one || parsed && release.Key(name, release.Bare(version)) == key)
}

func isNodeName(s string) bool {
	return len(s) <= maxNodeName && len(validation.IsDNS1123Subdomain(s)) == 0
}

// checkArtifacts checks the settings of where binaries come from.
func checkArtifacts(c Config, r *report) {
	for key, o := range c.Artifacts.Overrides {
		if o.SHA256 == "" {
			r.need(member("artifacts.overrides", key)+".sha256", false,
				"must be set: nothing is installed unverified")
		}
		name, _, _ := strings.Cut(key, "@")
		plain := []string{"kubelet", "kubectl", "kubeadm", "runc"}
		if slices.Contains(plain, name) && o.TarSHA256 != "" {
			r.add(member("artifacts.overrides", key)+".tarSHA256", show(o.TarSHA256),
				"must not be set: "+name+" is not an archive")
		}
	}
	if c.Artifacts.Directory != "" && (c.Artifacts.Mirror != "" || len(c.Artifacts.Mirrors) > 0) {
		r.warn("artifacts.directory",
			"mirrors have no effect: with a directory nothing is downloaded")
	}
}

// isLoopback: metrics are not for the network, which nobody authenticates.
func isLoopback(s string) bool {
	at, err := netip.ParseAddrPort(s)
	return err == nil && at.Addr().IsLoopback() && at.Port() != 0
}

func isTextfile(s string) bool { return isAbs(s) && strings.HasSuffix(s, ".prom") }
