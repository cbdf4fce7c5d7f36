package flexnode

import (
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// atKubernetes is where a resource says its version of Kubernetes.
const atKubernetes = "properties.versions.kubernetes"

// chooser chooses the versions of a node.
type chooser struct {
	// want is what the owner asks for now, asked what he asked for before, chosen what was chosen
	// then; empty for a node that is made.
	want, asked, chosen api.Versions
	server              string // version of the API server, "" while it is not known
}

// choose gives each version: the one that is asked for; else the one that was chosen before, as
// long as nothing else was asked for meanwhile; else the default. While the cluster's version is
// not known, what depends on it is left open.
func (c chooser) choose() (api.Versions, Problems) {
	anew := c.want == api.Versions{} && c.asked != api.Versions{}
	one := func(want, asked, chosen string) string {
		switch {
		case want != "":
			return strings.TrimPrefix(want, "v")
		case chosen != "" && asked == "" && !anew:
			return chosen
		}
		return ""
	}
	w, a, o := c.want, c.asked, c.chosen
	got := release.Set{
		Kubernetes: one(w.Kubernetes, a.Kubernetes, o.Kubernetes),
		Containerd: one(w.Containerd, a.Containerd, o.Containerd),
		Runc:       one(w.Runc, a.Runc, o.Runc),
		CNI:        one(w.CNI, a.CNI, o.CNI),
		NPD:        one(w.NPD, a.NPD, o.NPD),
	}
	var problems Problems
	switch {
	case got.Kubernetes == "" && c.server == "":
	case got.Kubernetes == "":
		var err error
		if got.Kubernetes, err = release.KubernetesFor(c.server); err != nil {
			problems.add(atKubernetes, "A version of Kubernetes must be set: %s.", err)
		}
	case got.Kubernetes != o.Kubernetes: // what runs may remain, whatever the cluster is upgraded to
		problems = checkSkew(got.Kubernetes, c.server)
	}
	return api.Versions(got.Filled()), problems
}

// checkSkew checks that a kubelet goes with an API server, as far as that is known.
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
