package flexnode

import (
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Refresh renders a node again after the facts of its cluster have changed. applied is the revision
// that it runs, joins as in a Put. A node that was never rendered is resolved, or Failed with a
// Reason. The revision is nil if there is no new one; the node may have changed even then.
func Refresh(
	n Node, last *Revision, parent Parent, at time.Time, renderer string, applied int64, joins bool,
) (Node, *Revision) {
	if parent.FactsLayer == nil {
		return n, nil
	}
	if last == nil {
		return n.resolve(parent, at, renderer)
	}
	n.Unreleased, n.Facts = n.Lost(applied), parent.factsID()
	if last.Facts == n.Facts && n.Assigned <= n.Revision { // else the offered one was made later
		return n, nil
	}
	r := *last
	r.Repeats = 0
	n.Before = max(n.newest(), last.Version)
	r.Version = NextVersion(n.Before, at)
	if n.Failed == n.Revision { // its owner has changed nothing
		n.Failed = r.Version
	}
	if n.Insisted == n.Revision {
		n.Insisted = r.Version
	}
	r.Facts, r.Created, r.By, r.Why, r.Renderer = n.Facts, at.UTC(), "", WhyFacts, renderer
	n.identify(parent.Tenant())
	n.point(r, joins)
	return n, &r
}

// resolve renders a node for the first time, once its cluster is known.
func (n Node) resolve(parent Parent, at time.Time, renderer string) (Node, *Revision) {
	versions, problems := parent.chooser(n.Desired.Versions).choose()
	next := n
	next.Chosen.Versions = versions
	own, wrong := next.wholeOwnLayer(parent.podNetwork(), parent)
	if len(problems) == 0 {
		problems = wrong
	}
	if len(problems) > 0 {
		n.State, n.Reason = api.Failed, problems[0].Message
		n.Facts, n.Tried = parent.factsID(), parent.Cluster.Properties.KubernetesVersion
		return n, nil
	}
	next.identify(parent.Tenant())
	next.Reason = ""
	if next.Credential == "" {
		next.State = ""
	} else if next.State == api.Failed {
		next.State = api.Updating
	}
	r := next.render(parent, Revision{
		Version: NextVersion(max(n.Revision, n.Floor), at), Created: at.UTC(), Why: "put",
		By: n.SystemData.LastModifiedBy, Renderer: renderer, Own: encode(own), Desired: &n.Desired,
	}, true)
	return next, r
}

// RefreshOffered renders the offered revision again, if it is not the desired one, after the API
// server's address or CA has changed: otherwise agents are cut off. It must be called before
// Refresh.
func RefreshOffered(
	n Node, offered *Revision, was *Layer, parent Parent, at time.Time, renderer string,
) (Node, *Revision) {
	is := parent.FactsLayer
	same := func(name string) bool {
		return textIn(was.object, "node", "kubelet", name) == textIn(is.object, "node", "kubelet", name)
	}
	if is == nil || offered == nil || was == nil || n.Assigned == n.Revision ||
		offered.Facts == parent.factsID() || same("serverURL") && same("caCertData") {
		return n, nil
	}
	r := *offered
	r.Facts, r.By, r.Why = parent.factsID(), "", WhyFacts
	made := n.reoffer(r, at, renderer)
	return n, made
}

// newest returns the lower bound of the next revision.
func (n Node) newest() int64 { return max(n.Revision, n.Assigned, n.Floor) }

// GoBack adds the identity of a revision that is offered again to the node's former ones.
func (n *Node) GoBack(applied Revision, tenant string) {
	if applied.Desired != nil {
		n.Former = n.Former.with(IdentityOf(n.ID, *applied.Desired, tenant), n.Identity)
	}
}
