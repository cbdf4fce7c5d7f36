package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// The values of agent.driftPolicy.
const DriftReport, DriftRepair, DriftOff = "report", "repair", "off"

// driftKinds are the kinds of things that can drift, which their names begin with: path:/etc/x.
var driftKinds = []string{
	"path", "unit", "sysctl", "module", "swap", "package", "opening", "node", "store", "arc",
}

// DriftPolicyOf returns the policy for drift of a thing of the given kind.
func (a Agent) DriftPolicyOf(kind string) string {
	if policy, ok := a.DriftPolicies[kind]; ok {
		return policy
	}
	return a.DriftPolicy
}

// DetectsDrift reports whether drift of any kind is detected.
func (a Agent) DetectsDrift() bool {
	return slices.ContainsFunc(driftKinds, func(kind string) bool {
		return a.DriftPolicyOf(kind) != DriftOff
	})
}

// maxNodeName is below that of a DNS name: the name is also the label kubernetes.io/hostname.
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

func checkArtifacts(c Config, r *report) {
	for key, o := range c.Artifacts.Overrides {
		at := member("artifacts.overrides", key)
		r.need(at+".sha256", o.SHA256 != "", "must be set: unverified artifacts are not installed")
		name, _, _ := strings.Cut(key, "@")
		plain := []string{"kubelet", "kubectl", "kubeadm", "runc"}
		if slices.Contains(plain, name) && o.TarSHA256 != "" {
			r.add(at+".tarSHA256", show(o.TarSHA256), "must not be set: "+name+" is not an archive")
		}
	}
	if c.Artifacts.Directory != "" && (c.Artifacts.Mirror != "" || len(c.Artifacts.Mirrors) > 0) {
		r.warn("artifacts.directory", "mirrors have no effect: with a directory nothing is downloaded")
	}
}

// isLoopback reports whether s is a loopback address and port, as metrics are unauthenticated.
func isLoopback(s string) bool {
	at, err := netip.ParseAddrPort(s)
	return err == nil && at.Addr().IsLoopback() && at.Port() != 0
}

func isTextfile(s string) bool { return isAbs(s) && strings.HasSuffix(s, ".prom") }

// The values of agent.upgradePolicy.drain: when a node is drained before a change.
const (
	DrainMinor  = "minor" // at a change of the Kubernetes minor version, and others in branches
	DrainAlways = "always"
	DrainNever  = "never"
)

// DefaultDeadline is applied where it is used, as all defaults of agent.upgradePolicy are.
const DefaultDeadline, defaultReadyTimeout = "15m", "5m"

// Drains reports whether the node is drained before a change. branch is set if the change is to
// another branch of Kubernetes or containerd, or to another pod subnet.
func (u UpgradePolicy) Drains(branch bool) bool {
	return u.Drain == DrainAlways || branch && u.Drain != DrainNever
}

// DrainDeadline returns the max duration of a drain; Parse has validated it.
func (u UpgradePolicy) DrainDeadline() time.Duration {
	return duration(cmp.Or(u.Deadline, DefaultDeadline))
}

// DeletesEmptyDir reports whether a drain evicts pods with an emptyDir, which deletes its data.
func (o DrainOptions) DeletesEmptyDir() bool { return *cmp.Or(o.DeleteEmptyDir, new(true)) }

// Opens returns the next time that the window is open: now if it is open. Parse has validated it.
func (w MaintenanceWindow) Opens(now time.Time) time.Time {
	start, _ := time.Parse("15:04", w.Start)
	lasts := duration(w.Duration)
	at, _ := time.ParseInLocation("-07:00", w.UTCOffset, time.UTC) // UTC if unset
	local := now.In(at.Location())
	for day := -7; ; day++ { // a window of last week may still be open
		begins := time.Date(local.Year(), local.Month(), local.Day()+day, start.Hour(), start.Minute(),
			0, 0, local.Location())
		held := len(w.Days) == 0 || slices.Contains(w.Days, begins.Weekday().String())
		switch {
		case !held || !now.Before(begins.Add(lasts)):
		case begins.After(now):
			return begins
		default:
			return now
		}
	}
}

var weekdays = []string{
	"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
}

func isTimeOfDay(s string) bool {
	_, err := time.Parse("15:04", s)
	return err == nil && len(s) == len("15:04")
}

// isOffset reports whether s is a UTC offset that is in use somewhere on Earth.
func isOffset(s string) bool {
	rest := strings.TrimLeft(s, "+-")
	return len(s) == len("+15:04") && len(rest) == len("15:04") && isTimeOfDay(rest) &&
		(s[0] == '+' && rest <= "14:00" || s[0] == '-' && rest <= "12:00")
}

func checkWindow(c Config, r *report) {
	const at = "agent.upgradePolicy.maintenanceWindow"
	w := c.Agent.UpgradePolicy.MaintenanceWindow
	if w == nil {
		return
	}
	const must = "must be set in this section"
	r.need(at+".start", w.Start != "", must)
	r.need(at+".duration", w.Duration != "", must)
	for i, day := range w.Days {
		if first := slices.Index(w.Days, day); first != i && !r.spoiled(item(at+".days", i)) {
			r.add(item(at+".days", i), show(day), "is given twice: keep one")
		}
	}
}
