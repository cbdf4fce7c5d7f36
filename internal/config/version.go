package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The Kubernetes minor versions that this program knows: older ones are refused, newer ones are a warning.
const (
	oldestMinor = 29
	newestMinor = 36
	// lastMinorContainerd1 is the last kubelet that works with containerd 1.x.
	lastMinorContainerd1 = 35
)

const semver = `v?(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(?:-[0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?`

func versionRules() []rule {
	const aVersion = "a version x.y.z"
	return []rule{
		{"kubernetes.version", fmt.Sprintf("a version x.y.z, 1.%d.0 or later", oldestMinor), func(s string) bool {
			v, ok := parseVersion(s)
			return ok && v.major == 1 && v.minor >= oldestMinor
		}},
		{"kubernetes.urlTemplate", "an https URL with {version} (or %s), perhaps {arch} (or a second %s), of the directory that holds kubelet, kubectl and kubeadm", isTemplate},
		{"containerd.version", "a version 1.7.z or 2.y.z", func(s string) bool {
			v, ok := parseVersion(s)
			return ok && (v.major == 2 || (v.major == 1 && v.minor == 7))
		}},
		{"containerd.pauseImage", "an image reference, such as registry.example/pause:3.10", matches(imageReference)},
		{"runc.version", aVersion, isVersion},
		{"runc.url", aPlainURL, isHTTPS},
		{"cni.version", "a version x.y.z, 1.3.0 or later", func(s string) bool {
			v, ok := parseVersion(s)
			return ok && (v.major > 1 || (v.major == 1 && v.minor >= 3))
		}},
		{"npd.version", aVersion, isVersion},
	}
}

const (
	aPlainURL      = "an https URL without user, query and fragment"
	imageReference = `[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?`
)

// version is the numbers of a semantic version.
type version struct{ major, minor, patch int }

func parseVersion(s string) (version, bool) {
	m := regexp.MustCompile(`\A` + semver + `\z`).FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	return version{n[0], n[1], n[2]}, true
}

func isVersion(s string) bool {
	_, ok := parseVersion(s)
	return ok
}

// bare strips the leading "v" of a version; anything else stays as it is.
func bare(s string) string {
	if isVersion(s) {
		return strings.TrimPrefix(s, "v")
	}
	return s
}

// BinaryURL is where kubelet, kubectl or kubeadm of this version is, or "" where upstream's URL holds.
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
	return isHTTPS(dir) && !archive && !strings.ContainsAny(dir, "{}") && !strings.Contains(dir, "%s")
}

// checkVersions looks at versions that do not go together, with each other or with the host.
func checkVersions(c Config, host Host, r *report) {
	kubernetes, ok := parseVersion(c.Kubernetes.Version)
	if !ok {
		return
	}
	if kubernetes.major == 1 && kubernetes.minor > newestMinor {
		r.warn("kubernetes.version", fmt.Sprintf("Kubernetes %s is newer than what this program knows (1.%d): it may need settings that are not made", c.Kubernetes.Version, newestMinor))
	}
	containerd, ok := parseVersion(c.Containerd.Version)
	if ok && containerd.major == 1 && kubernetes.minor > lastMinorContainerd1 && !r.spoiledAny("containerd.version", "kubernetes.version") {
		r.add("containerd.version", show(c.Containerd.Version), fmt.Sprintf("must be 2.y.z for Kubernetes %s, which does not work with containerd 1", c.Kubernetes.Version))
	}
	for _, other := range []string{"amd64", "arm64"} {
		if other != host.Arch && strings.Contains(c.Kubernetes.URLTemplate, "/"+other) && !r.spoiled("kubernetes.urlTemplate") {
			r.add("kubernetes.urlTemplate", show(c.Kubernetes.URLTemplate), fmt.Sprintf("must not name %s: this machine is %s; write {arch}", other, host.Arch))
		}
	}
}
