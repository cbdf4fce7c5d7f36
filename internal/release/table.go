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
	// tested are the oldest patches, one of each release branch of containerd, that are recommended
	// for it, newest branch first. Branches that are newer than the first came out after that
	// Kubernetes and are fine too.
	tested []Version
}

// rows is the table of what works with what, newest Kubernetes first.
//
// The tested versions are the "Kubernetes support" matrix of https://containerd.io/releases (as it
// was in August 2026; the rows before 1.32, which it no longer has, as they were last), without
// containerd 1.6, which the agent does not run. It says "which versions have been the most
// thoroughly tested": a recommendation and no wall. The default is longTerm.
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
// one that gets fixes for years, and to which its project tests upgrades from 1.7.
func longTerm() Version { return releaseOf(2, 3, 0) }

// LastMinorContainerd1 is the last minor version of Kubernetes whose kubelet works with containerd
// 1.x (SIG Node's plan, announced with the release of Kubernetes 1.34).
const LastMinorContainerd1 = 35

// OldestMinor and NewestMinor are the minor versions of Kubernetes that this program knows.
func OldestMinor() int { return rows()[len(rows())-1].minor }

// NewestMinor is the other end: a newer one may need settings that are not made (TooNew).
func NewestMinor() int { return rows()[0].minor }

// TooNew returns the newest release branch of Kubernetes or containerd that this program knows,
// such as 2.3, if a version is of a newer one; else "".
func TooNew(name, version string) string {
	newest, known := map[string]Version{
		"Kubernetes": releaseOf(1, NewestMinor(), 0), "containerd": rows()[0].tested[0].line(),
	}[name]
	if v, ok := Parse(version); !known || !ok || v.line().Compare(newest) <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", newest.Major, newest.Minor)
}

// runcLine is the release branch of runc that a containerd is built and tested with upstream
// (script/setup/runc-version in containerd's release branches: 1.4 from 2.3 on, 1.3 before).
func runcLine(containerd Version) Version {
	if containerd.line().Compare(releaseOf(2, 3, 0)) >= 0 {
		return releaseOf(1, 4, 0)
	}
	return releaseOf(1, 3, 0)
}

// OldestCNI is the first release of the CNI plugins with every plugin that the agent installs.
func OldestCNI() Version { return releaseOf(1, 3, 0) }

// Set is the versions of the components of a node; "" is one that is left open.
type Set struct{ Kubernetes, Containerd, Runc, CNI, NPD string }

// Filled is the set with a default for what is open, as far as what it depends on is known:
// containerd depends on Kubernetes, runc on containerd. A default is the newest pinned patch.
// Kubernetes itself depends on the cluster (KubernetesFor).
func (s Set) Filled() Set {
	if _, ok := Parse(s.Kubernetes); ok {
		s.Containerd = cmp.Or(s.Containerd, newestPatch("containerd", longTerm()))
	}
	if c, ok := Parse(s.Containerd); ok {
		s.Runc = cmp.Or(s.Runc, newestPatch("runc", runcLine(c)))
	}
	s.CNI = cmp.Or(s.CNI, everywhere()["cni-plugins"][0])
	s.NPD = cmp.Or(s.NPD, everywhere()["node-problem-detector"][0])
	return s
}

func newestPatch(name string, line Version) string {
	for _, version := range everywhere()[name] { // newest first
		if v, _ := Parse(version); v.line() == line {
			return version
		}
	}
	panic("internal error: no " + name + " of the branch " + line.String() + " is pinned")
}

// rowOf is the row of a version of Kubernetes, or of its next neighbour.
func rowOf(kubernetes Version) row {
	table := rows()
	for _, r := range table {
		if kubernetes.Major > 1 || kubernetes.Minor >= r.minor {
			return r
		}
	}
	return table[len(table)-1]
}

// ContainerdWorks reports whether a kubelet works with a containerd. Else nothing is judged.
func ContainerdWorks(kubernetes, containerd string) bool {
	k, ok := Parse(kubernetes)
	c, also := Parse(containerd)
	return !ok || !also || c.Major > 1 || k.Minor <= LastMinorContainerd1
}

// ContainerdAdvice says which newer containerd its project recommends for a Kubernetes, or "".
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

// recommended reports whether a version is among those, a later patch, or of a newer branch.
func recommended(v Version, oldest []Version) bool {
	if v.line().Compare(oldest[0].line()) > 0 {
		return true
	}
	for _, o := range oldest {
		if v.line() == o.line() {
			return v.Compare(o) >= 0
		}
	}
	return false
}

// atLeast writes versions as containerd's own matrix does: "2.3.0+, 2.2.0+".
func atLeast(oldest []Version) string {
	var list []string
	for _, v := range oldest {
		list = append(list, v.String()+"+")
	}
	return strings.Join(list, ", ")
}

// MaxSkew is the number of minor versions that kubelet may be older than the API server
// (https://kubernetes.io/releases/version-skew-policy/).
const MaxSkew = 3

// Skew compares a kubelet's version with the API server's. Patch versions do not count.
type Skew int

// A kubelet works with an API server of its own minor version and of up to MaxSkew newer ones.
const (
	Works Skew = iota
	Newer
	TooOld
	// Unreadable is the skew of what is not a version 1.y.z of Kubernetes.
	Unreadable
)

// SkewOf compares a kubelet with an API server, whose version may be written as it says it itself.
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

// KubernetesFor chooses the version of Kubernetes where it is left open: the newest pinned one that
// is not newer than the API server, which is the API server's own where that is pinned.
func KubernetesFor(server string) (string, error) {
	return newestFor(server, Pinned("kubelet"))
}

func newestFor(server string, pinned []string) (string, error) {
	s, ok := ParseServer(server)
	if !ok {
		return "", fmt.Errorf("the API server's version %.40q is not a version x.y.z", server)
	}
	for _, candidate := range pinned {
		v, _ := Parse(candidate)
		if v.Compare(s) <= 0 && SkewOf(candidate, server) == Works {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no version that goes with an API server of version %s is known: the "+
		"newest known are %s", Bare(server), strings.Join(newestOfEach(pinned), ", "))
}

func newestOfEach(versions []string) []string {
	return slices.CompactFunc(slices.Clone(versions), func(a, b string) bool {
		v, _ := Parse(a)
		w, _ := Parse(b)
		return v.line() == w.line()
	})
}

// Flaw is a way out of a container that is known of releases of one artifact.
type Flaw struct {
	// Name is the artifact's, IDs are those of the flaws; Published is the day, Source where.
	Name, IDs, Published, Source string
	// Since is the first release that has it; the zero value is every one. Fixed are the first ones
	// without it, one of each branch that was fixed, newest first.
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
		// a label of an image becomes a command of the machine's root
		{"containerd", "CVE-2026-53488", "2026-06-19",
			"https://github.com/containerd/containerd/security/advisories/GHSA-xhf5-7wjv-pqxp",
			v(1, 7, 0), []Version{v(2, 3, 2), v(2, 2, 5), v(2, 1, 9), v(2, 0, 10), v(1, 7, 33)}},
		// a checkpoint brings devices and mounts of the machine
		{"containerd", "CVE-2026-53492", "2026-06-19",
			"https://github.com/containerd/containerd/security/advisories/GHSA-33vj-92qq-66hc",
			v(2, 1, 0), []Version{v(2, 3, 2), v(2, 2, 5), v(2, 1, 9)}},
	}
})

// Flawed says why a container can break out with a version, and what to take; "" if none is known.
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

// support holds the days on which release branches get their last fixes, by artifact and branch: of
// Kubernetes those of https://kubernetes.io/releases/patch-releases/, to come by its rule of 14
// months; of containerd those of its RELEASES.md, as planned in November 2026. The long-term
// containerd 2.3 has two years from April 2026 at least, and no day yet.
var support = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"kubelet 1.29": "2025-02-28", "kubelet 1.30": "2025-07-15", "kubelet 1.31": "2025-11-11",
		"kubelet 1.32": "2026-02-28", "kubelet 1.33": "2026-06-28", "kubelet 1.34": "2026-10-27",
		"kubelet 1.35": "2027-02-28", "kubelet 1.36": "2027-06-28",
		"containerd 1.7": "2026-09-30", "containerd 2.0": "2025-11-07",
		"containerd 2.1": "2026-05-05", "containerd 2.2": "2026-11-06",
	}
})

// SupportEnded returns the day on which the branch of a version got its last fixes; "" while it
// gets some, or if none is known. Days are written as 2026-11-26; without today nothing has ended.
func SupportEnded(name, version, today string) string {
	v, _ := Parse(version)
	day := support()[fmt.Sprintf("%s %d.%d", name, v.Major, v.Minor)]
	if day >= today {
		return ""
	}
	return day
}
