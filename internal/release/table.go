package release

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

type row struct {
	minor int
	// tested are the oldest recommended patches for this Kubernetes, one per release branch of
	// containerd, newest branch first. Newer branches came out after that Kubernetes and work too.
	tested []Version
}

// rows is the table of versions that work together, newest Kubernetes first.
//
// The tested versions are the "Kubernetes support" matrix of https://containerd.io/releases as of
// August 2026 (rows before 1.32 as last published), without containerd 1.6, which the agent does
// not support. The matrix lists "which versions have been the most thoroughly tested": a
// recommendation, not a requirement. The default is longTerm.
var rows = sync.OnceValue(func() []row {
	v := releaseOf
	return []row{
		{36, []Version{v(2, 3, 0), v(2, 2, 0)}},
		{35, []Version{v(2, 2, 0), v(2, 1, 5), v(1, 7, 28)}},
		{34, []Version{v(2, 1, 3), v(2, 0, 6), v(1, 7, 28)}},
		{33, []Version{v(2, 1, 0), v(2, 0, 4), v(1, 7, 24)}},
		{32, []Version{v(2, 1, 0), v(2, 0, 1), v(1, 7, 24)}},
		{31, []Version{v(2, 1, 0), v(2, 0, 0), v(1, 7, 20)}},
		{30, []Version{v(2, 1, 0), v(2, 0, 0), v(1, 7, 13)}},
		{29, []Version{v(1, 7, 11)}},
	}
})

// longTerm is the release branch of containerd whose newest pinned patch is the default: the only
// one with fixes for years, and to which its project tests upgrades from 1.7.
func longTerm() Version { return releaseOf(2, 3, 0) }

// LastMinorContainerd1 is the last minor version of Kubernetes whose kubelet works with containerd
// 1.x (SIG Node's plan, announced with the release of Kubernetes 1.34).
const LastMinorContainerd1 = 35

// OldestMinor returns the oldest known minor version of Kubernetes.
func OldestMinor() int { return rows()[len(rows())-1].minor }

// NewestMinor returns the newest known one: a newer one may need other settings (TooNew).
func NewestMinor() int { return rows()[0].minor }

// TooNew returns the newest known release branch of Kubernetes or containerd, such as 2.3, if the
// version is of a newer one; else "".
func TooNew(name, version string) string {
	newest, known := map[string]Version{
		"Kubernetes": releaseOf(1, NewestMinor(), 0), "containerd": rows()[0].tested[0].line(),
	}[name]
	if v, ok := Parse(version); !known || !ok || v.line().Compare(newest) <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", newest.Major, newest.Minor)
}

// runcLine returns the release branch of runc with which a containerd is built and tested upstream
// (script/setup/runc-version in containerd's release branches: 1.4 from 2.3 on, 1.3 before).
func runcLine(containerd Version) Version {
	if containerd.line().Compare(releaseOf(2, 3, 0)) >= 0 {
		return releaseOf(1, 4, 0)
	}
	return releaseOf(1, 3, 0)
}

// OldestCNI returns the first release of the CNI plugins with every plugin that the agent installs.
func OldestCNI() Version { return releaseOf(1, 3, 0) }

// Set holds the versions of a node's components; "" is left open.
type Set struct{ Kubernetes, Containerd, Runc, CNI, NPD string }

// Filled returns the set with defaults for open versions, if the version they depend on is known:
// containerd depends on Kubernetes, runc on containerd. A default is the newest pinned patch.
// Kubernetes depends on the cluster (KubernetesFor).
func (s Set) Filled() Set {
	if _, ok := Parse(s.Kubernetes); ok {
		s.Containerd = cmp.Or(s.Containerd, newestPatch("containerd", longTerm()))
	}
	if c, ok := Parse(s.Containerd); ok {
		s.Runc = cmp.Or(s.Runc, newestPatch("runc", runcLine(c)))
	}
	s.CNI = cmp.Or(s.CNI, Pinned("cni-plugins")[0])
	s.NPD = cmp.Or(s.NPD, Pinned("node-problem-detector")[0])
	return s
}

func newestPatch(name string, line Version) string {
	for _, version := range Pinned(name) { // newest first
		if v, _ := Parse(version); v.line() == line {
			return version
		}
	}
	panic("internal error: no " + name + " of the branch " + line.String() + " is pinned")
}

// rowOf returns the row of a Kubernetes version, or the nearest one.
func rowOf(kubernetes Version) row {
	table := rows()
	for _, r := range table {
		if kubernetes.Major > 1 || kubernetes.Minor >= r.minor {
			return r
		}
	}
	return table[len(table)-1]
}

// ContainerdWorks reports whether a kubelet works with a containerd; true if one is unreadable.
func ContainerdWorks(kubernetes, containerd string) bool {
	k, ok := Parse(kubernetes)
	c, also := Parse(containerd)
	return !ok || !also || c.Major > 1 || k.Minor <= LastMinorContainerd1
}

// ContainerdAdvice returns advice to use a recommended containerd with a Kubernetes version, or "".
func ContainerdAdvice(kubernetes, containerd string) string {
	k, ok := Parse(kubernetes)
	c, also := Parse(containerd)
	if !ok || !also {
		return ""
	}
	r := rowOf(k)
	if recommended(c, r.tested) {
		return ""
	}
	return fmt.Sprintf("containerd %s is older than what its project recommends for Kubernetes 1.%d: "+
		"%s", c, r.minor, atLeast(r.tested))
}

// recommended reports whether a version is at least its branch's listed one, or newer than all.
func recommended(v Version, oldest []Version) bool {
	i := slices.IndexFunc(oldest, func(o Version) bool { return v.line() == o.line() })
	if i < 0 {
		return v.line().Compare(oldest[0].line()) > 0
	}
	return v.Compare(oldest[i]) >= 0
}

// atLeast formats versions as containerd's matrix does: "2.3.0+, 2.2.0+".
func atLeast(oldest []Version) string {
	var list []string
	for _, v := range oldest {
		list = append(list, v.String()+"+")
	}
	return strings.Join(list, ", ")
}

// MaxSkew is the max number of minor versions by which kubelet may be older than the API server
// (https://kubernetes.io/releases/version-skew-policy/).
const MaxSkew = 3

// Skew is the relation of a kubelet's version to the API server's. Patch versions do not count.
type Skew int

// A kubelet works with an API server of its own minor version or up to MaxSkew newer.
const (
	Works Skew = iota
	Newer
	TooOld
	Unreadable // means that one is not a version 1.y.z of Kubernetes
)

// SkewOf compares a kubelet with an API server, whose version may be in the form that it reports.
func SkewOf(kubelet, server string) Skew {
	k, known := Parse(kubelet)
	s, ok := ParseServer(server)
	switch {
	case !known || !ok || k.Major != 1 || s.Major != 1:
		return Unreadable
	case k.Minor > s.Minor:
		return Newer
	case k.Minor+MaxSkew < s.Minor:
		return TooOld
	}
	return Works
}

// KubernetesFor returns the default version of Kubernetes: the newest pinned one that is not newer
// than the API server, thus the API server's own if that is pinned.
func KubernetesFor(server string) (string, error) {
	return newestFor(server, Pinned("kubelet"))
}

func newestFor(server string, pinned []string) (string, error) {
	s, ok := ParseServer(server)
	if !ok {
		return "", fmt.Errorf("the API server's version %.40q is not a version x.y.z", server)
	}
	for _, candidate := range pinned {
		if v, _ := Parse(candidate); v.Compare(s) <= 0 && SkewOf(candidate, server) == Works {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no version that goes with an API server of version %s is known: the "+
		"newest known is %s, the oldest %s", Bare(server), pinned[0], pinned[len(pinned)-1])
}

// Flaw is a known container escape in releases of an artifact.
type Flaw struct {
	// Name is the artifact and IDs the flaw's identifiers; Published is the day, Source the advisory.
	Name, IDs, Published, Source string
	// Since is the first release with the flaw; the zero value means all. Fixed are the first releases
	// without it, one per fixed branch, newest first.
	Since Version
	Fixed []Version
}

var flaws = sync.OnceValue(func() []Flaw {
	v := releaseOf
	return []Flaw{
		// through masked paths, /dev/console and /proc
		{"runc", "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", "2025-11-05",
			"https://github.com/opencontainers/runc/security/advisories/GHSA-9493-h29p-rfm2",
			Version{}, []Version{v(1, 4, 0), v(1, 3, 3), v(1, 2, 8)}},
		// an image label becomes a command that runs as root on the machine
		{"containerd", "CVE-2026-53488", "2026-06-19",
			"https://github.com/containerd/containerd/security/advisories/GHSA-xhf5-7wjv-pqxp",
			v(1, 7, 0), []Version{v(2, 3, 2), v(2, 2, 5), v(2, 1, 9), v(2, 0, 10), v(1, 7, 33)}},
		// a checkpoint brings the machine's devices and mounts into a container
		{"containerd", "CVE-2026-53492", "2026-06-19",
			"https://github.com/containerd/containerd/security/advisories/GHSA-33vj-92qq-66hc",
			v(2, 1, 0), []Version{v(2, 3, 2), v(2, 2, 5), v(2, 1, 9)}},
	}
})

// Flawed returns the known flaw that lets a container escape, and the fixed versions, or "".
func Flawed(name, version string) string {
	v, ok := Parse(version)
	for _, f := range flaws() {
		if ok && f.Name == name && v.Compare(f.Since) >= 0 && !recommended(v, f.Fixed) {
			return fmt.Sprintf("%s %s lets a container break out (%s, %s, %s): take %s", name, v, f.IDs,
				f.Published, f.Source, atLeast(f.Fixed))
		}
	}
	return ""
}

// support holds the last day with fixes of each release branch, by artifact and branch. Kubernetes:
// https://kubernetes.io/releases/patch-releases/, future ones by its rule of 14 months. containerd:
// its RELEASES.md, as planned in November 2026. The long-term containerd 2.3 has at least two years
// from April 2026, and no day yet.
var support = map[string]string{
	"kubelet 1.29": "2025-02-28", "kubelet 1.30": "2025-07-15", "kubelet 1.31": "2025-11-11",
	"kubelet 1.32": "2026-02-28", "kubelet 1.33": "2026-06-28", "kubelet 1.34": "2026-10-27",
	"kubelet 1.35": "2027-02-28", "kubelet 1.36": "2027-06-28",
	"containerd 1.7": "2026-09-30", "containerd 2.0": "2025-11-07",
	"containerd 2.1": "2026-05-05", "containerd 2.2": "2026-11-06",
}

// SupportEnded returns the last day with fixes of a version's branch if it has passed, else "",
// also if unknown. Days have the form 2026-11-26; with an empty today, nothing has ended.
func SupportEnded(name, version, today string) string {
	v, _ := Parse(version)
	day := support[fmt.Sprintf("%s %d.%d", name, v.Major, v.Minor)]
	if day >= today {
		return ""
	}
	return day
}
