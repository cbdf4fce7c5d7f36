package flexnode

import (
	"cmp"
	"slices"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

const (
	// FailedNodes is how many nodes of a cluster have to fail versions until the others are not
	// offered them.
	FailedNodes = 3
	// FailedWithin is within what time they have to: single nodes fail now and then.
	FailedWithin = 7 * 24 * time.Hour
	// maxFailures bounds how many versions a cluster remembers.
	maxFailures = 16
)

// Failures are component versions that nodes of a cluster have failed to run, the newest first.
type Failures []Failure

// Failure is versions that were failed together.
type Failure struct {
	Versions api.Versions `json:"versions"`
	// Nodes are the uids of the first nodes, at most FailedNodes.
	Nodes []string  `json:"nodes"`
	Since time.Time `json:"since"`
	// Allowed is who has them offered in spite of that.
	Allowed string `json:"allowed,omitempty"`
}

func (f Failure) holds() bool { return len(f.Nodes) >= FailedNodes && f.Allowed == "" }

// Hold reports whether nodes that do not run these versions yet are not offered them.
func (f Failures) Hold(v api.Versions) bool {
	at := f.find(v)
	return at >= 0 && f[at].holds()
}

// Verdict is whether versions are held that enough nodes have failed. Those that are not have been,
// be it for a moment, until they were allowed.
type Verdict struct {
	Versions api.Versions
	Held     bool
}

// Verdicts are those on all versions that enough nodes have failed, in order.
func (f Failures) Verdicts() []Verdict {
	all := []Verdict{}
	for _, one := range f {
		if len(one.Nodes) >= FailedNodes {
			all = append(all, Verdict{one.Versions, one.holds()})
		}
	}
	slices.SortFunc(all, func(x, y Verdict) int {
		a, b := x.Versions, y.Versions
		return cmp.Or(strings.Compare(a.Kubernetes, b.Kubernetes),
			strings.Compare(a.Containerd, b.Containerd), strings.Compare(a.Runc, b.Runc),
			strings.Compare(a.CNI, b.CNI), strings.Compare(a.NPD, b.NPD))
	})
	return all
}

func (f Failures) find(v api.Versions) int {
	return slices.IndexFunc(f, func(one Failure) bool { return one.Versions == v })
}

// With has also the failure of a node. It is the same when that is known, or enough are. Of too
// many the oldest one is forgotten that holds nothing.
func (f Failures) With(v api.Versions, uid string, at time.Time) Failures {
	next, one := slices.Clone(f), Failure{Versions: v, Since: at.UTC()}
	if found := next.find(v); found >= 0 {
		one = next[found]
		if len(one.Nodes) >= FailedNodes || slices.Contains(one.Nodes, uid) {
			return f
		}
		next = slices.Delete(next, found, found+1)
		if at.Sub(one.Since) > FailedWithin {
			one.Nodes, one.Since = nil, at.UTC()
		}
	}
	one.Nodes = append(slices.Clone(one.Nodes), uid)
	next = slices.Insert(next, 0, one)
	for len(next) > maxFailures {
		last := len(next) - 1
		for i := last; i > 0; i-- {
			if !next[i].holds() {
				last = i
				break
			}
		}
		next = slices.Delete(next, last, last+1)
	}
	return next
}

// Allow has versions be offered by who asks for it: those that are as wanted, where "" is any. It
// reports whether there are some.
func (f Failures) Allow(v api.Versions, by string) (Failures, bool) {
	next, found := slices.Clone(f), false
	same := func(want, is string) bool { return want == "" || want == is }
	for i, one := range next {
		o := one.Versions
		if same(v.Kubernetes, o.Kubernetes) && same(v.Containerd, o.Containerd) &&
			same(v.Runc, o.Runc) && same(v.CNI, o.CNI) && same(v.NPD, o.NPD) {
			next[i].Allowed, found = by, true
		}
	}
	return next, found
}

// Shown are failures as callers see them.
func (f Failures) Shown() []api.FailedVersions {
	shown := []api.FailedVersions{}
	for _, one := range f {
		shown = append(shown, api.FailedVersions{
			Versions: one.Versions, Nodes: len(one.Nodes), Since: one.Since,
			Held: one.holds(), AllowedBy: one.Allowed,
		})
	}
	return shown
}
