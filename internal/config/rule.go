package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// rule defines the allowed values of a setting. Problems and the reference use the same words.
type rule struct {
	allowed string // completes "must be ..." (for the names in a map: "every name must be ...")
	// ok reports whether a value is allowed; nil if the setting is checked elsewhere.
	ok func(string) bool
}

const (
	aPath      = "a clean absolute path"
	aDirectory = aPath + " of letters, digits and . _ + @ -, and not a system directory"
)

// rules holds the rules of all settings but booleans, by the names in the fields' tags: "must" for
// a setting or for an item of a list or map, "keys" for the names in a map.
var rules = map[string]rule{
	// azure
	"guid":  {"a GUID", isGUID},
	"cloud": anyOf(PublicCloud, USGovernmentCloud, ChinaCloud),
	"host":  {"an https URL of a host, optionally with a port", isHTTPSHost},
	"endpoint": {"an https URL of a host, optionally with a port, or resourceManager",
		func(s string) bool { return s == ResourceManager || isHTTPSHost(s) }},
	"audience":   {"the id of an application, such as api://CLIENT-ID", matches(`[!-~]+`)},
	"credential": oneOf(CredentialToken, CredentialCertificate),
	"pool":       {"1 to 12 characters a-z and 0-9, a letter first", matches(`[a-z][a-z0-9]{0,11}`)},
	"registry": {"the host of a registry, optionally with a port, or *. followed by a domain with " +
		"at least two labels",
		matches(`(?:\*\.)?` + label + `(?:\.` + label + `)+(?::[0-9]{1,5})?`)},
	"user":        {"the name of a user", matches(`[A-Za-z_][A-Za-z0-9._-]{0,31}`)},
	"date":        {"a day, such as 2027-01-31", isDay},
	"secret":      {"printable ASCII without spaces", matches(`[!-~]+`)},
	"secret-file": {aPath + ", or the name of a systemd credential", isSecretFile},
	"path":        {aPath, isAbs},
	"token": {"a bootstrap token: 6 characters, a dot, 16 characters, each a-z or 0-9",
		matches(`[a-z0-9]{6}\.[a-z0-9]{16}`)},
	"cluster": {"the id of a managed cluster: /subscriptions/<GUID>/resourceGroups/<name>" +
		"/providers/Microsoft.ContainerService/managedClusters/<name>", isClusterID},
	"location": {"an Azure region, such as westeurope", matches(`[A-Za-z0-9][A-Za-z0-9 ]{0,62}`)},
	"machine": {"1 to 54 letters, digits, '-', '_' and '.', a letter or digit first and last",
		matches(`[A-Za-z0-9](?:[A-Za-z0-9._-]{0,52}[A-Za-z0-9])?`)},
	"group": {"the name of a resource group: up to 90 letters, digits, '-', '_', '.', '(' and ')', " +
		"no '.' last", isResourceGroup},
	"role": {"a GUID, or one of " + strings.Join(slices.Sorted(maps.Keys(Roles())), ", "), isRole},
	"tag": {`the name of a tag: 1 to 512 characters, printable and none of < > % & \ ? / =`,
		upTo(512, matches(`[^<>%&\\?/=\p{C}]+`))},
	"tag-value": {"up to 256 printable characters", upTo(256, matches(`[^\p{C}]*`))},
	// http suffices for a signed repository.
	"http-url": {"an http or https URL without user, query and fragment", func(s string) bool {
		return isHTTPS(s) || isHTTPS("https"+strings.TrimPrefix(s, "http"))
	}},
	"suite": {"letters, digits and . _ / -", matches(`[A-Za-z0-9._/-]+`)},
	// versions
	"kubernetes": {fmt.Sprintf("a version x.y.z, 1.%d.0 or later", release.OldestMinor()),
		isKubernetesVersion},
	"directory-url": {"an https URL with {version} (or %s), perhaps {arch} (or a second %s), of the " +
		"directory that holds kubelet, kubectl and kubeadm", isTemplate},
	"runc-url": {"an https URL, perhaps with {version} (or %s) and {arch} (or a second %s)",
		isFileTemplate},
	"containerd": {"a version 1.7.z or 2.y.z", isContainerdVersion},
	"image":      {"an image reference, such as registry.example/pause:3.10", matches(imageReference)},
	"version":    {"a version x.y.z", func(s string) bool { return isVersion(s, release.Version{}) }},
	"cni": {fmt.Sprintf("a version x.y.z, %s or later", release.OldestCNI()),
		func(s string) bool { return isVersion(s, release.OldestCNI()) }},
	// node
	"max-pods": between(1, 1000),
	"label": {"a label that a node may set on itself: [prefix/]name, name of up to 63 letters, " +
		"digits, '-', '_', '.'; of the prefixes kubernetes.io and k8s.io only those that " +
		"kubelet may set", IsLabel},
	"label-value": {"a label value: up to 63 letters, digits, '-', '_' and '.', a letter or digit " +
		"first and last", isLabelValue},
	"taint": {"key=value:Effect or key:Effect, Effect one of NoSchedule, PreferNoSchedule and " +
		"NoExecute", isTaint},
	"reserved":  oneOf("cpu", "memory", "ephemeral-storage", "pid"),
	"quantity":  {"a quantity, such as 100m or 1Gi", isQuantity},
	"signal":    anyOf(evictionSignals...),
	"threshold": {"a quantity, such as 100Mi, or a percentage, 0% for none", isThreshold},
	"verbosity": between(0, 10),
	"percent":   between(0, 100),
	"dns":       {"an IP address", IsDNS},
	"ca":        {aCA, nil},
	"node-ip":   {"an IP address, or an IPv4 and an IPv6 address separated by a comma", isNodeIP},
	"log-size":  {"a quantity of 1Ki or more without a fraction, such as 10Mi", isLogSize},
	"log-files": between(2, 100),
	"pids":      {"-1 or a whole number from 64 to 4194304", isPidsLimit},
	"swap":      oneOf(SwapOff, SwapLimited),
	"stop":      {"0s or a duration from 1s to 1h, such as 30s", isShutdown},
	// paths; own-dir: no one else may have files in it
	"dir":     {aDirectory, isDir},
	"own-dir": {aDirectory, isDir},
	// network
	"listen": {"address:port, such as 127.0.0.1:10257", isListenAddress},
	"pod-cidr": {fmt.Sprintf("a subnet for this node's pods alone, such as 10.244.1.0/24: address "+
		"and mask of a network, mask /%d to /%d (IPv6: /%d to /%d)",
		podBitsMin4, podBitsMax4, podBitsMin6, podBitsMax6), isPodCIDR},
	"network":  {"a network, such as 10.244.0.0/16: its address and mask", isNetwork},
	"firewall": oneOf(FirewallManage, FirewallCheck, FirewallIgnore),
	"metadata": oneOf(MetadataBlock, MetadataAllow),
	"proxy":    {"a URL http(s)://[user:password@]host[:port]", isProxy},
	"no-proxy": {"a host, a domain, an IP address, a CIDR or *", isNoProxy},
	// artifacts
	"url": {"an https URL without user, query and fragment", isHTTPS},
	"artifact": {anyOf(release.Names()...).allowed +
		", alone or with a version, as in kubelet@1.36.3", isArtifact},
	"digest": {"64 hexadecimal digits", matches(`[0-9a-f]{64}`)},
	"size":   {"a number of bytes, or 0", func(s string) bool { return isWhole(s, 0, 1<<40) }},
	// agent
	"log-level":  oneOf("debug", "info", "warning", "error"),
	"log-format": oneOf("text", "json"),
	"node-name": {fmt.Sprintf("an RFC 1123 subdomain of at most %d characters: lower-case letters, "+
		"digits, '-' and '.', a letter or digit first and last", maxNodeName), isNodeName},
	"drift":      oneOf(DriftReport, DriftRepair, DriftOff),
	"drift-kind": anyOf(driftKinds...),
	"check":      aDuration("10s", "10m", "5m"),
	// A restarted kubelet needs a little more than the settling time to pass the health gate.
	"ready":    aDuration("10s", "1h", "5m"),
	"drain":    oneOf(DrainMinor, DrainAlways, DrainNever),
	"deadline": aDuration("1m", "24h", "15m"),
	"day":      anyOf(weekdays...),
	"time":     {"a time of day from 00:00 to 23:59", isTimeOfDay},
	"window":   aDuration("15m", "24h", "4h"),
	"offset":   {"an offset from -12:00 to +14:00", isOffset},
	"poll":     aDuration("10s", "1h", "30s"),
	"loopback": {"a loopback address and a port, such as 127.0.0.1:10259", isLoopback},
	"textfile": {"a clean absolute path that ends with .prom", isTextfile},
}

// oneOf allows a few values: "a, b or c".
func oneOf(values ...string) rule {
	last := len(values) - 1
	return rule{strings.Join(values[:last], ", ") + " or " + values[last], anyOf(values...).ok}
}

// anyOf allows many values: "one of a, b, c".
func anyOf(values ...string) rule {
	return rule{"one of " + strings.Join(values, ", "),
		func(s string) bool { return slices.Contains(values, s) }}
}

func between(low, high int64) rule {
	allowed := fmt.Sprintf("a whole number from %d to %d", low, high)
	return rule{allowed, func(s string) bool { return isWhole(s, low, high) }}
}

func isWhole(s string, low, high int64) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && low <= n && n <= high
}

// matches allows strings that a regular expression matches as a whole. It compiles on first use.
func matches(pattern string) func(string) bool {
	whole := sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\A(?:` + pattern + `)\z`)
	})
	return func(s string) bool { return whole().MatchString(s) }
}

func upTo(length int, ok func(string) bool) func(string) bool {
	return func(s string) bool { return utf8.RuneCountInString(s) <= length && ok(s) }
}

func aDuration(low, high, example string) rule {
	return rule{fmt.Sprintf("a duration from %s to %s, such as %s", low, high, example),
		func(s string) bool {
			d, err := time.ParseDuration(s)
			return err == nil && duration(low) <= d && d <= duration(high)
		}}
}

// duration parses a valid duration; 0 if it is not set.
func duration(s string) time.Duration {
	d, _ := time.ParseDuration(s)
	return d
}

// applyRules checks each setting by itself; other checks report missing settings.
func applyRules(settings []leaf, r *report) {
	for _, l := range settings {
		if l.value.Kind() == reflect.Map {
			rule := rules[l.keys]
			for _, key := range l.value.MapKeys() {
				if name := key.String(); !rule.ok(name) && !r.spoiled(l.path()) {
					r.add(member(l.path(), name), "", "every name here must be "+rule.allowed)
				}
			}
			continue
		}
		rule, text := rules[l.must], l.text()
		set := text != "" || l.item
		if set && rule.ok != nil && !rule.ok(text) && !r.spoiled(l.path()) {
			r.add(l.path(), l.shown(), "must be "+rule.allowed)
		}
	}
}

func isDay(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// isHost reports whether s is a DNS name or an IP address (in URL form: IPv6 without brackets).
func isHost(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Zone() == ""
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(s))) == 0
}

// parseURL parses an absolute URL with a host; one with a query or fragment may hold a secret.
func parseURL(s string) (*url.URL, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || !isHost(u.Hostname()) || strings.ContainsAny(s, "?#") {
		return nil, false
	}
	port := u.Port()
	if port == "" && strings.HasSuffix(u.Host, ":") || port != "" && !isWhole(port, 1, 65535) {
		return nil, false
	}
	return u, isURLPath(u.EscapedPath())
}

var isURLPath = matches(`[A-Za-z0-9._~/%+@:=-]*`)

// isHTTPS reports whether s is an https URL without user.
func isHTTPS(s string) bool {
	u, ok := parseURL(s)
	return ok && u.Scheme == "https" && u.User == nil
}

// isHTTPSHost reports whether s is an https URL of a host and perhaps a port, without a path.
func isHTTPSHost(s string) bool {
	u, ok := parseURL(s)
	return ok && u.Scheme == "https" && u.User == nil && strings.Trim(u.Path, "/") == ""
}

// isProxy reports whether s is the URL of a proxy; it may have user and password.
func isProxy(s string) bool {
	u, ok := parseURL(s)
	return ok && (u.Scheme == "http" || u.Scheme == "https") && strings.Trim(u.Path, "/") == ""
}

// isAddr reports whether s is a host's address: unicast, neither loopback nor link-local.
func isAddr(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Zone() == "" && !addr.Is4In6() && addr.IsGlobalUnicast()
}

// IsDNS reports whether s can be the address of a DNS service, or of a link-local cache for it.
func IsDNS(s string) bool {
	addr, err := netip.ParseAddr(s)
	return isAddr(s) || (err == nil && addr.Is4() && addr.IsLinkLocalUnicast())
}

func isNodeIP(s string) bool {
	first, second, two := strings.Cut(s, ",")
	families := strings.Contains(first, ":") != strings.Contains(second, ":")
	return isAddr(first) && (!two || isAddr(second) && families)
}

// isAbs reports whether s is a clean absolute path of characters that need no quoting anywhere.
func isAbs(s string) bool { return isPath(s) && path.Clean(s) == s }

var isPath = matches(`/[A-Za-z0-9._+@/-]+`)

// isDir reports whether s can be a directory of the node. unbootstrap removes some with all their
// contents, so it must not be a directory of the system or of others.
func isDir(s string) bool {
	alive := []string{"/proc", "/sys", "/dev", "/boot"}
	below := func(top string) bool { return inside(s, top) }
	return isAbs(s) && strings.Count(s, "/") > 1 && !slices.ContainsFunc(alive, below) &&
		!slices.Contains([]string{
			"/etc/systemd", "/etc/systemd/system", "/etc/sysctl.d", "/etc/modules-load.d", "/etc/ssl",
			"/etc/containerd", "/etc/tmpfiles.d",
			"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share",
			"/usr/local", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib",
			"/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/tmp", "/var/run", "/var/mail",
			"/var/opt", "/run/systemd", "/run/lock", "/lib/systemd",
		}, s)
}

// ownDirs are the directories that this program uses under fixed names.
var ownDirs = []string{
	"/etc/aks-flex-node", "/var/lib/aks-flex-node", "/run/aks-flex-node", "/opt/aks-flex-node",
	"/var/lib/containerd", "/run/containerd", "/etc/containerd", "/etc/node-problem-detector",
}

// checkDirs refuses directories that overlap but must be separate.
func checkDirs(settings []leaf, r *report) {
	var before []leaf
	for _, l := range settings {
		if l.must != "dir" && l.must != "own-dir" || r.spoiled(l.path()) {
			continue
		}
		dir := l.text()
		for _, own := range ownDirs {
			if overlap(dir, own) {
				r.add(l.path(), show(dir), "must not overlap "+own+", which is already in use")
			}
		}
		for _, other := range before {
			alone := l.must == "own-dir" || other.must == "own-dir"
			clash := dir == other.text() || alone && overlap(dir, other.text())
			if clash && !r.spoiled(other.path()) {
				r.add(l.path(), show(dir),
					fmt.Sprintf("must not overlap %s (%s)", other.path(), other.text()))
			}
		}
		before = append(before, l)
	}
}

func overlap(a, b string) bool { return inside(a, b) || inside(b, a) }

func inside(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
