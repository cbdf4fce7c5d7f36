package release

import (
	"fmt"
	"sync"
)

// Flaw is a way out of a container that is known of releases of one artifact.
type Flaw struct {
	// Name is the artifact's, IDs are those of the flaws; Published is the day, Source where.
	Name, IDs, Published, Source string
	// Since is the first release that has it; the zero value is every one. Fixed are the first ones
	// without it, one of each branch that was fixed, newest first.
	Since Version
	Fixed []Version
}

// flaws are those that are known.
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
// Kubernetes those of https://kubernetes.io/releases/patch-releases/, to come by its rule of 14 months;
// of containerd those of its RELEASES.md, as planned in November 2026. The long-term containerd 2.3
// has two years from April 2026 at least, and no day yet.
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
