package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// The Kubernetes minor versions that this program knows: older ones are refused, newer ones are a
// warning.
const (
	oldestMinor = 29
	newestMinor = 36
	// lastMinorContainerd1 is the last kubelet that works with containerd 1.x.
	lastMinorContainerd1 = 35
)

const semver = `v?(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
	`(?:-[0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?`

// imageReference is the name of an image with a tag, a digest, both or neither.
const imageReference = `[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?(?::[0-9]{1,5})?` +
	`(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?`

func versionRules() []rule {
	const aVersion = "a version x.y.z"
	const aTemplate = "an https URL with {version} (or %s), perhaps {arch} (or a second %s), " +
		"of the directory that holds kubelet, kubectl and kubeadm"
	const anImage = "an image reference, such as registry.example/pause:3.10"
	return []rule{
		{"kubernetes.version", aKubernetesVersion(), isKubernetesVersion},
		{"kubernetes.urlTemplate", aTemplate, isTemplate},
		{"containerd.version", "a version 1.7.z or 2.y.z", func(s string) bool {
			v, ok := parseVersion(s)
			return ok && (v.major == 2 || (v.major == 1 && v.minor == 7))
		}},
		{"containerd.pauseImage", anImage, matches(imageReference)},
		{"runc.version", aVersion, isVersion},
		{"runc.url", aPlainURL, isHTTPS},
		{"cni.version", "a version x.y.z, 1.3.0 or later", func(s string) bool {
			v, ok := parseVersion(s)
			return ok && (v.major > 1 || (v.major == 1 && v.minor >= 3))
		}},
		{"npd.version", aVersion, isVersion},
	}
}

func aKubernetesVersion() string {
	return fmt.Sprintf("a version x.y.z, 1.%d.0 or later", oldestMinor)
}

func isKubernetesVersion(s string) bool {
	v, ok := parseVersion(s)
	return ok && v.major == 1 && v.minor >= oldestMinor
}

var (
	aSemver        = expression(`\A` + semver + `\z`)
	aServerVersion = expression(
		`\Av?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:[^0-9.].*)?\z`)
)

// version is the numbers of a semantic version.
type version struct{ major, minor, patch int }

// Numbers are the major, minor and patch number of a semantic version, with or without a leading
// "v".
func Numbers(s string) (numbers [3]int, ok bool) {
	v, ok := parseVersion(s)
	return [3]int{v.major, v.minor, v.patch}, ok
}

func parseVersion(s string) (version, bool) {
	m := aSemver().FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}
	return numbers(m), true
}

// numbers makes a version of the three numbers in a match; those that are too large become 0.
func numbers(match []string) version {
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(match[i+1])
	}
	return version{n[0], n[1], n[2]}
}

// serverVersion reads what an API server says of itself, which vendors spell differently:
// v1.34.4, 1.34.4+build, 1.34.
func serverVersion(s string) (version, bool) {
	m := aServerVersion().FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}
	return numbers(m), true
}

func (v version) compare(other version) int {
	return cmp.Or(cmp.Compare(v.major, other.major), cmp.Compare(v.minor, other.minor),
		cmp.Compare(v.patch, other.patch))
}

func isVersion(s string) bool {
	_, ok := parseVersion(s)
	return ok
}

// bare strips the leading "v" of a version; anything else is returned unchanged.
func bare(s string) string {
	if rest, ok := strings.CutPrefix(s, "v"); ok && isVersion(s) {
		return rest
	}
	return s
}

// BinaryURL is where kubelet, kubectl or kubeadm of this version is, or "" where upstream's URL
// holds.
func (k Kubernetes) BinaryURL(name, arch string) string {
	if k.URLTemplate == "" {
		return ""
	}
	return strings.TrimSuffix(k.expand(arch), "/") + "/" + name
}

func (k Kubernetes) expand(arch string) string {
	dir := strings.NewReplacer("{version}", k.Version, "{arch}", arch).Replace(k.URLTemplate)
	dir = strings.Replace(dir, "%s", k.Version, 1)
	return strings.Replace(dir, "%s", arch, 1)
}

func isTemplate(s string) bool {
	if !strings.Contains(s, "{version}") && !strings.Contains(s, "%s") {
		return false
	}
	dir := Kubernetes{Version: "1.2.3", URLTemplate: s}.expand("amd64")
	archive := strings.HasSuffix(dir, ".gz") || strings.HasSuffix(dir, ".tgz")
	rest := strings.ContainsAny(dir, "{}") || strings.Contains(dir, "%s")
	return isHTTPS(dir) && !archive && !rest
}

// checkVersions checks that versions go together, with each other and with the host.
func checkVersions(c Config, host Host, r *report) {
	checkKubernetes(c, r)
	const at = "kubernetes.urlTemplate"
	for _, other := range []string{"amd64", "arm64"} {
		named := strings.Contains(c.Kubernetes.URLTemplate, "/"+other)
		if named && other != host.Arch && !r.spoiled(at) {
			r.add(at, show(c.Kubernetes.URLTemplate),
				fmt.Sprintf("must not name %s: this machine is %s; write {arch}", other, host.Arch))
		}
	}
}

// checkKubernetes checks what else depends on the version of Kubernetes. One that is left open is
// checked once it is known (WithKubernetes).
func checkKubernetes(c Config, r *report) {
	kubernetes, ok := parseVersion(c.Kubernetes.Version)
	if !ok {
		return
	}
	if kubernetes.major == 1 && kubernetes.minor > newestMinor {
		r.warn("kubernetes.version", fmt.Sprintf("Kubernetes %s is newer than the versions that "+
			"this program knows (up to 1.%d): it may need settings that are not made",
			c.Kubernetes.Version, newestMinor))
	}
	containerd, ok := parseVersion(c.Containerd.Version)
	old := ok && containerd.major == 1 && kubernetes.minor > lastMinorContainerd1
	if old && !r.spoiledAny("containerd.version", "kubernetes.version") {
		r.add("containerd.version", show(c.Containerd.Version), fmt.Sprintf("must be 2.y.z for "+
			"Kubernetes %s, which does not work with containerd 1", c.Kubernetes.Version))
	}
}
