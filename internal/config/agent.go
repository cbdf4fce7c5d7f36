package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

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
func driftKinds() []string {
	return []string{
		"path", "unit", "sysctl", "module", "swap", "package", "opening", "node", "store", "arc",
	}
}

// DriftPolicyOf is what happens when a thing of a kind is no longer as configured.
func (a Agent) DriftPolicyOf(kind string) string {
	if policy, ok := a.DriftPolicies[kind]; ok {
		return policy
	}
	return a.DriftPolicy
}

// DetectsDrift tells whether anything is compared with the configuration at all.
func (a Agent) DetectsDrift() bool {
	return slices.ContainsFunc(driftKinds(), func(kind string) bool {
		return a.DriftPolicyOf(kind) != DriftOff
	})
}

// maxNodeName is shorter than a DNS name may be, since the name is also the value of the label
// kubernetes.io/hostname.
const maxNodeName = 63

// The bounds of agent.readyTimeout. The least one leaves a kubelet that was restarted time to pass
// the health gate, which takes the settling time and a little more.
const (
	readyTimeoutMin = 10 * time.Second
	readyTimeoutMax = time.Hour
)

// aPlainURL is what a URL may be where a user or a query could hide a secret.
const aPlainURL = "an https URL without user, query and fragment"

func agentRules() []rule {
	const aDigest = "64 hexadecimal digits"
	const window = "agent.upgradePolicy.maintenanceWindow."
	aName := fmt.Sprintf("an RFC 1123 subdomain of at most %d characters: lower-case letters, "+
		"digits, '-' and '.', a letter or digit first and last", maxNodeName)
	artifacts := []string{
		"kubelet", "kubectl", "kubeadm", "containerd", "runc", "cni-plugins",
		"node-problem-detector",
	}
	return []rule{
		{"agent.logLevel", "debug, info, warning or error",
			oneOf("debug", "info", "warning", "error")},
		{"agent.nodeName", aName, isNodeName},
		{"agent.driftPolicy", "report, repair or off", oneOf(DriftReport, DriftRepair, DriftOff)},
		{"agent.driftPolicies", "one of " + strings.Join(driftKinds(), ", "), oneOf(driftKinds()...)},
		{"agent.driftPolicies.*", "report, repair or off",
			oneOf(DriftReport, DriftRepair, DriftOff)},
		{"agent.checkInterval", "a duration from 10s to 10m, such as 5m",
			isDuration(10*time.Second, 10*time.Minute)},
		{"agent.readyTimeout", "a duration from 10s to 1h, such as 5m",
			isDuration(readyTimeoutMin, readyTimeoutMax)},
		{"agent.upgradePolicy.drain", "minor, always or never",
			oneOf(DrainMinor, DrainAlways, DrainNever)},
		{"agent.upgradePolicy.deadline", "a duration from 1m to 24h, such as 15m",
			isDuration(time.Minute, 24*time.Hour)},
		{window + "days.*", "one of " + strings.Join(weekdays(), ", "), oneOf(weekdays()...)},
		{window + "start", "a time of day from 00:00 to 23:59", isTimeOfDay},
		{window + "duration", "a duration from 15m to 24h, such as 4h",
			isDuration(15*time.Minute, 24*time.Hour)},
		{window + "utcOffset", "an offset from -12:00 to +14:00", isOffset},
		{"agent.monitoring.endpoint", "an https URL of a host, perhaps with a port", isHTTPSHost},
		{"agent.monitoring.interval", "a duration from 10s to 1h, such as 30s",
			isDuration(10*time.Second, time.Hour)},
		{"agent.metrics.listen", "a loopback address and a port, such as 127.0.0.1:10259", isLoopback},
		{"agent.metrics.textfile", "a clean absolute path that ends with .prom", isTextfile},
		{"artifacts.mirror", aPlainURL, isHTTPS},
		{"artifacts.mirrors.*", aPlainURL, isHTTPS},
		{"artifacts.directory", "a clean absolute path", isAbs},
		{"artifacts.overrides", "one of " + strings.Join(artifacts, ", ") +
			", alone or with a version, as in kubelet@1.36.3", isArtifact(oneOf(artifacts...))},
		{"artifacts.overrides.*.url", aPlainURL, isHTTPS},
		{"artifacts.overrides.*.sha256", aDigest, isDigest},
		{"artifacts.overrides.*.tarSHA256", aDigest, isDigest},
		{"artifacts.overrides.*.size", "a number of bytes, or 0", between(0, 1<<40)},
	}
}

// isArtifact tells whether a key of artifacts.overrides names an artifact, or a version of one.
func isArtifact(known func(string) bool) func(string) bool {
	return func(key string) bool {
		name, version, one := strings.Cut(key, "@")
		_, parsed := release.Parse(version)
		return known(name) && (!one || parsed && release.Key(name, release.Bare(version)) == key)
	}
}

func isDigest(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

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
		plain := oneOf("kubelet", "kubectl", "kubeadm", "runc")(name)
		if plain && o.TarSHA256 != "" {
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
