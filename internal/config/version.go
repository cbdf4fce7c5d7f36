package config

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// imageReference is the name of an image with a tag, a digest, both or neither.
const imageReference = `[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?(?::[0-9]{1,5})?` +
	`(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?`

func isKubernetesVersion(s string) bool {
	v, ok := release.Parse(s)
	oldest := release.Version{Major: 1, Minor: release.OldestMinor()}
	return ok && v.Major == 1 && v.Compare(oldest) >= 0
}

func isContainerdVersion(s string) bool {
	v, ok := release.Parse(s)
	return ok && (v.Major == 2 || v.Major == 1 && v.Minor == 7)
}

func isVersion(s string, oldest release.Version) bool {
	v, ok := release.Parse(s)
	return ok && v.Compare(oldest) >= 0
}

// VerifiesImages reports whether kubelet's default is to verify the use of an image (KEP-2535).
func (k Kubernetes) VerifiesImages() bool {
	v, _ := release.Parse(k.Version)
	return v.Minor >= 35
}

// BinaryURL returns the configured URL of kubelet, kubectl or kubeadm; "" for upstream's URL.
func (k Kubernetes) BinaryURL(name, arch string) string {
	if k.URLTemplate == "" {
		return ""
	}
	return strings.TrimSuffix(expand(k.URLTemplate, k.Version, arch), "/") + "/" + name
}

// BinaryURL returns the configured URL of runc; "" for upstream's URL.
func (r Runc) BinaryURL(arch string) string { return expand(r.URL, r.Version, arch) }

func expand(template, version, arch string) string {
	url := strings.NewReplacer("{version}", version, "{arch}", arch).Replace(template)
	url = strings.Replace(url, "%s", version, 1)
	return strings.Replace(url, "%s", arch, 1)
}

// isTemplate reports whether s is a template for the URL of a directory per version.
func isTemplate(s string) bool {
	versioned := strings.Contains(s, "{version}") || strings.Contains(s, "%s")
	dir := expand(s, "1.2.3", "amd64")
	archive := strings.HasSuffix(dir, ".gz") || strings.HasSuffix(dir, ".tgz")
	return versioned && isFileTemplate(s) && !archive
}

func isFileTemplate(s string) bool {
	url := expand(s, "1.2.3", "amd64")
	return isHTTPS(url) && !strings.ContainsAny(url, "{}") && !strings.Contains(url, "%s")
}

func checkVersions(c Config, host Host, r *report) {
	checkKubernetes(c, r)
	checkReleases(c, cmp.Or(host.Before, &Config{}), r)
	for _, other := range []string{"amd64", "arm64"} {
		for at, url := range map[string]string{
			"kubernetes.urlTemplate": c.Kubernetes.URLTemplate, "runc.url": c.Runc.URL,
		} {
			named := strings.Contains(url, "/"+other) || strings.HasSuffix(url, "."+other)
			if named && other != host.Arch && !r.spoiled(at) {
				r.add(at, show(url), fmt.Sprintf(
					"must not name %s: this machine is %s; write {arch}", other, host.Arch))
			}
		}
	}
}

// checkReleases refuses versions that let a container break out, and release branches newer than
// this program, which may need unknown settings. It only warns if they are allowed or run already.
func checkReleases(c Config, before *Config, r *report) {
	for _, v := range []struct{ at, name, version, before string }{
		{"kubernetes.version", "Kubernetes", c.Kubernetes.Version, before.Kubernetes.Version},
		{"containerd.version", "containerd", c.Containerd.Version, before.Containerd.Version},
		{"runc.version", "runc", c.Runc.Version, before.Runc.Version},
	} {
		judge := func(why, remedy string, allowed bool) {
			switch {
			case r.spoiled(v.at):
			case allowed || v.version == v.before:
				r.warn(v.at, why)
			default:
				r.add(v.at, show(v.version), why+remedy)
			}
		}
		if flaw := c.Flaw(v.name, v.version); flaw != "" {
			judge(flaw, ", or set artifacts.allowVulnerable", c.Artifacts.AllowVulnerable)
		}
		if newest := release.TooNew(v.name, v.version); newest != "" {
			judge(fmt.Sprintf("must be %s.z or older: this release of aks-flex-node supports no newer "+
				"%s; update it first", newest, v.name), "", false)
		}
	}
}

// Flaw returns release.Flawed of a version; "" for an owner's own build, with a configured digest.
func (c Config) Flaw(name, version string) string {
	if o := c.Artifacts.Overrides; o[name].SHA256 != "" || o[release.Key(name, version)].SHA256 != "" {
		return ""
	}
	return release.Flawed(name, version)
}

// checkKubernetes checks settings that depend on the version of Kubernetes, once it is known.
func checkKubernetes(c Config, r *report) {
	v, known := release.Parse(c.Kubernetes.Version)
	if known && v.Minor < 30 && c.Node.Kubelet.KeepsSwap() {
		r.add("node.kubelet.swap", show(SwapLimited), "needs Kubernetes 1.30 or later; "+
			"kubernetes.version is "+c.Kubernetes.Version)
	}
	if !known || r.spoiled("containerd.version", "kubernetes.version") {
		return
	}
	if !release.ContainerdWorks(c.Kubernetes.Version, c.Containerd.Version) {
		r.add("containerd.version", show(c.Containerd.Version), fmt.Sprintf("must be 2.y.z for "+
			"Kubernetes %s, which does not work with containerd 1", c.Kubernetes.Version))
		return
	}
	if advice := release.ContainerdAdvice(c.Kubernetes.Version, c.Containerd.Version); advice != "" {
		r.warn("containerd.version", advice)
	}
}

// WithKubernetesFor is WithKubernetes with the newest version that works with the API server's.
func (c Config) WithKubernetesFor(server string) (Config, []Warning, error) {
	version, err := release.KubernetesFor(server)
	if err != nil {
		return c, nil, fmt.Errorf("cannot choose a version of Kubernetes: %w; set kubernetes.version",
			err)
	}
	return c.WithKubernetes(version)
}

// WithKubernetes returns the configuration with the given version of Kubernetes and the defaults
// that depend on it. Warnings are those that Parse could not give. The error is of type Problems.
func (c Config) WithKubernetes(version string) (Config, []Warning, error) {
	c.Kubernetes.Version = release.Bare(version)
	r := &report{}
	if !isKubernetesVersion(version) {
		r.add("kubernetes.version", show(version), "must be "+rules["kubernetes"].allowed)
	}
	c.fillVersions()
	checkKubernetes(c, r)
	return c, r.warnings, r.err(c)
}
