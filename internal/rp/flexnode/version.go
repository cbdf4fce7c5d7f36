package flexnode

import (
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/release"
)

const atKubernetes = "properties.versions.kubernetes"

type chooser struct {
	// want is the present request; asked and chosen are the previous request and choice, if any.
	want, asked, chosen Versions
	server              string // version of the API server, "" while it is not known
	// overridden has the artifacts, or versions of one, whose digests the operator has set.
	overridden map[string]bool
}

// choose returns each version: the requested one; else the previous choice, unless another was
// requested; else the default. It leaves open versions that depend on an unknown cluster version.
func (c chooser) choose() (Versions, Problems) {
	allowed, vulnerable := c.want.AllowUnknown, c.want.AllowVulnerable
	c.want.AllowUnknown, c.asked.AllowUnknown = false, false
	c.want.AllowVulnerable, c.asked.AllowVulnerable = false, false
	cleared := c.want == Versions{} && c.asked != Versions{}
	one := func(want, asked, chosen string) string {
		if want == "" && asked == "" && !cleared {
			return chosen
		}
		return strings.TrimPrefix(want, "v")
	}
	w, a, o := c.want, c.asked, c.chosen
	got := release.Set{
		Kubernetes: one(w.Kubernetes, a.Kubernetes, o.Kubernetes),
		Containerd: one(w.Containerd, a.Containerd, o.Containerd),
		Runc:       one(w.Runc, a.Runc, o.Runc), CNI: one(w.CNI, a.CNI, o.CNI),
		NPD: one(w.NPD, a.NPD, o.NPD),
	}
	var problems Problems
	switch {
	case got.Kubernetes == "" && c.server == "":
	case got.Kubernetes == "":
		var err error
		if got.Kubernetes, err = release.KubernetesFor(c.server); err != nil {
			problems.add(atKubernetes, "A version of Kubernetes must be set: %s.", err)
		}
	case got.Kubernetes != o.Kubernetes: // a running version may stay after an upgrade of the cluster
		problems = checkSkew(got.Kubernetes, c.server)
	}
	skewed, former := len(problems) > 0, artifactsOf(c.chosen)
	for _, a := range artifactsOf(versionsOf(got)) {
		at := "properties.versions." + a.member
		if slices.Contains(former, a) || c.overrides(a) { // a running version may stay
			continue
		}
		if !allowed && a.isUnpinned() && !(skewed && a.member == "kubernetes") {
			problems.add(at, "The version '%s' is not known to the provider: it may not exist, and its "+
				"digest cannot be checked. Known are %s. With versions.allowUnknown the agent takes "+
				"the digest from the project's checksum file.",
				a.version, strings.Join(release.Pinned(a.name), ", "))
		}
		if flaw := release.Flawed(a.name, a.version); !vulnerable && flaw != "" {
			problems.add(at, "%s, or set versions.allowVulnerable.", flaw)
		}
	}
	return versionsOf(got.Filled()), problems
}

func versionsOf(s release.Set) Versions {
	return Versions{
		Kubernetes: s.Kubernetes, Containerd: s.Containerd, Runc: s.Runc, CNI: s.CNI, NPD: s.NPD,
	}
}

// artifact is one of a node's versions: its member in the resource, its name and the version.
type artifact struct{ member, name, version string }

func artifactsOf(v Versions) []artifact {
	return []artifact{
		{"kubernetes", "kubelet", v.Kubernetes}, {"containerd", "containerd", v.Containerd},
		{"runc", "runc", v.Runc}, {"cni", "cni-plugins", v.CNI}, {"npd", "node-problem-detector", v.NPD},
	}
}

// unpinned lists the versions whose digests are not known.
func unpinned(v Versions) (names []string) {
	for _, a := range artifactsOf(v) {
		if a.isUnpinned() {
			names = append(names, a.name+" "+a.version)
		}
	}
	return names
}

// isUnpinned reports whether a version has no known digest; false for a text that is no version.
func (a artifact) isUnpinned() bool {
	_, ok := release.Parse(a.version)
	return ok && !slices.Contains(release.Pinned(a.name), a.version)
}

// overrides reports whether the operator has set the digest of a version: it is his own build.
func (c chooser) overrides(a artifact) bool {
	return c.overridden[a.name] || c.overridden[release.Key(a.name, a.version)]
}

// chooser returns a chooser for a node without previous versions.
func (p Parent) chooser(want Versions) chooser {
	c := chooser{
		want: want, server: p.Cluster.Properties.KubernetesVersion, overridden: map[string]bool{},
	}
	overrides, _ := in(p.Defaults.settings(), "artifacts", "overrides").(object)
	for name, value := range overrides {
		o, _ := value.(object)
		c.overridden[name] = textIn(o, "sha256") != ""
	}
	return c
}

// checkSkew checks that a kubelet works with an API server, as far as their versions are known.
func checkSkew(kubelet, server string) Problems {
	var problems Problems
	if _, ok := release.Parse(kubelet); !ok {
		problems.add(atKubernetes, "The Kubernetes version '%s' is not a version x.y.z.",
			shorten(kubelet))
		return problems
	}
	switch release.SkewOf(kubelet, server) {
	case release.Newer:
		problems.add(atKubernetes, "The Kubernetes version '%s' is newer than the cluster's API "+
			"server, which is %s; upgrade the cluster first.", kubelet, server)
	case release.TooOld:
		problems.add(atKubernetes, "The Kubernetes version '%s' is more than %d minor versions "+
			"older than the cluster's API server, which is %s.", kubelet, release.MaxSkew, server)
	case release.Works, release.Unreadable: // the cluster may not have been reached yet
	}
	return problems
}
