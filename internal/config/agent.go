package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// What happens when the host is no longer as configured.
const (
	DriftReport = "report"
	DriftRepair = "repair"
	DriftOff    = "off"
)

// maxNodeName is shorter than a DNS name may be, because the name is also the value of the label kubernetes.io/hostname.
const maxNodeName = 63

// The bounds of agent.readyTimeout.
const (
	readyTimeoutMin = 10 * time.Second
	readyTimeoutMax = time.Hour
)

func agentRules() []rule {
	const aDigest = "64 hexadecimal digits"
	return []rule{
		{"agent.logLevel", "debug, info, warning or error", oneOf("debug", "info", "warning", "error")},
		{"agent.nodeName", fmt.Sprintf("an RFC 1123 subdomain of at most %d characters: lower-case letters, digits, '-' and '.', a letter or digit first and last", maxNodeName), isNodeName},
		{"agent.driftPolicy", "report, repair or off", oneOf(DriftReport, DriftRepair, DriftOff)},
		{"agent.readyTimeout", "a duration from 10s to 1h, such as 5m", isDuration(readyTimeoutMin, readyTimeoutMax)},
		{"artifacts.mirror", aPlainURL, isHTTPS},
		{"artifacts.mirrors.*", aPlainURL, isHTTPS},
		{"artifacts.directory", "a clean absolute path", isAbs},
		{"artifacts.overrides", "one of kubelet, kubectl, kubeadm, containerd, runc, cni-plugins, node-problem-detector",
			oneOf("kubelet", "kubectl", "kubeadm", "containerd", "runc", "cni-plugins", "node-problem-detector")},
		{"artifacts.overrides.*.url", aPlainURL, isHTTPS},
		{"artifacts.overrides.*.sha256", aDigest, matches(`[0-9a-f]{64}`)},
		{"artifacts.overrides.*.tarSHA256", aDigest, matches(`[0-9a-f]{64}`)},
		{"artifacts.overrides.*.size", "a number of bytes, or 0", between(0, 1<<40)},
	}
}

func isNodeName(s string) bool {
	return len(s) <= maxNodeName && len(validation.IsDNS1123Subdomain(s)) == 0
}

// checkArtifacts looks at where binaries come from.
func checkArtifacts(c Config, r *report) {
	for name, o := range c.Artifacts.Overrides {
		at := member("artifacts.overrides", name)
		r.need(at+".sha256", o.SHA256 != "", "must be set: nothing is installed unverified")
		if plain := oneOf("kubelet", "kubectl", "kubeadm", "runc")(name); plain && o.TarSHA256 != "" {
			r.add(at+".tarSHA256", show(o.TarSHA256), "must not be set: "+name+" is no archive")
		}
	}
	if c.Artifacts.Directory != "" && (c.Artifacts.Mirror != "" || len(c.Artifacts.Mirrors) > 0) {
		r.warn("artifacts.directory", "no mirror is asked as long as a directory is set")
	}
}
