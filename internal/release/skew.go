package release

import (
	"fmt"
	"slices"
	"strings"
)

// MaxSkew is how many minor versions kubelet may be older than the API server
// (https://kubernetes.io/releases/version-skew-policy/).
const MaxSkew = 3

// Skew is how a kubelet's version stands to the API server's. Patch versions do not count.
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

// newestOfEach leaves the newest patch of each minor version.
func newestOfEach(versions []string) []string {
	return slices.CompactFunc(slices.Clone(versions), func(a, b string) bool {
		v, _ := Parse(a)
		w, _ := Parse(b)
		return v.line() == w.line()
	})
}
