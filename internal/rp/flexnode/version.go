package flexnode

import (
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// skew is how many minor versions kubelet may be older than its API server (Kubernetes version skew
// policy).
const skew = 3

// components are the versions that go with each other and with every Kubernetes version that the
// agent knows. The lab's end-to-end tests run them with Kubernetes 1.34 and 1.35.
func components() api.Versions {
	return api.Versions{Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0"}
}

// chooser chooses the versions of a node.
type chooser struct {
	// want is what the owner asks for now, asked what he asked for before, chosen what was chosen
	// then; empty for a node that is made.
	want, asked, chosen api.Versions
	table               api.Versions // newest
	server              string       // version of the API server, "" while it is not known
}

// choose gives each version: the one that is asked for; else the one that was chosen before, as
// long as nothing else was asked for meanwhile; else the newest of the table.
func (c chooser) choose() (api.Versions, Problems) {
	c.table.Kubernetes = c.server
	anew := c.want == api.Versions{} && c.asked != api.Versions{}
	one := func(want, asked, chosen, newest string) string {
		switch {
		case want != "":
			return strings.TrimPrefix(want, "v")
		case chosen != "" && asked == "" && !anew:
			return chosen
		}
		return newest
	}
	w, a, o, t := c.want, c.asked, c.chosen, c.table
	got := api.Versions{
		Kubernetes: one(w.Kubernetes, a.Kubernetes, o.Kubernetes, t.Kubernetes),
		Containerd: one(w.Containerd, a.Containerd, o.Containerd, t.Containerd),
		Runc:       one(w.Runc, a.Runc, o.Runc, t.Runc),
		CNI:        one(w.CNI, a.CNI, o.CNI, t.CNI),
		NPD:        one(w.NPD, a.NPD, o.NPD, t.NPD),
	}
	if got.Kubernetes == o.Kubernetes {
		return got, nil // it runs: a cluster that was upgraded meanwhile keeps nobody from a change
	}
	return got, checkSkew(got.Kubernetes, c.server)
}

// checkSkew checks that a kubelet goes with an API server, as far as that is known.
func checkSkew(kubelet, server string) Problems {
	var problems Problems
	const at = "properties.versions.kubernetes"
	if kubelet == "" && server == "" {
		return nil // it is the cluster's, once that is known
	}
	k, ok := config.Numbers(kubelet)
	if !ok {
		problems.add(at, "The Kubernetes version '%s' is not a version x.y.z.", shorten(kubelet))
		return problems
	}
	s, ok := config.Numbers(server)
	switch {
	case !ok: // the cluster has not been reached yet
	case k[0] != s[0] || k[1] > s[1] || k[1] == s[1] && k[2] > s[2]:
		problems.add(at, "The Kubernetes version '%s' is newer than the cluster's API server, "+
			"which is %s; upgrade the cluster first.", kubelet, server)
	case s[1]-k[1] > skew:
		problems.add(at, "The Kubernetes version '%s' is more than %d minor versions older than "+
			"the cluster's API server, which is %s.", kubelet, skew, server)
	}
	return problems
}
