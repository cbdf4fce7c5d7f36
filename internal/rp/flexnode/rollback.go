package flexnode

import (
	"bytes"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Rollback is a request to return a node to one of its revisions.
type Rollback struct {
	// To is the revision to return to, Desired the current desired one.
	To, Desired *Revision
	// Parent is the cluster as it is, with the defaults that To was rendered with.
	Parent     Parent
	Secret     Secret // that is stored
	By, ByType string
	At         time.Time
	Renderer   string
	// Joins and Running are as in a Put.
	Joins   bool
	Running []map[string]any
}

// RollBack returns a node to the settings of a revision, with the cluster's present facts, in a new
// revision, since versions do not go back. A revision that is desired and offered, and has not
// failed, changes nothing. The error is an *arm.Error or Problems.
func RollBack(ask Rollback, old Node) (Decision, error) {
	to := ask.To
	sp, _ := principalOf(to.Desired.AzureAuth)
	if sp != nil && (!ask.Secret.Known || to.SecretVersion != ask.Secret.Version) {
		return Decision{}, arm.Errorf(409, "SecretNotKept",
			"The client secret of configVersion %d is no longer stored: it was replaced or is no longer "+
				"needed. PUT the node with that configuration and a client secret of the client id '%s'; "+
				"diff shows the differences.", to.Version, sp.ClientID)
	}
	d := Decision{Node: old, Changed: true, Write: true, DropSecret: sp == nil && ask.Secret.Known}
	n := &d.Node
	n.Desired, n.SecretVersion = paused(*to.Desired, old.Desired), to.SecretVersion
	var err error
	if n.Chosen, err = chosenIn(to.Own); err != nil {
		return Decision{}, err
	}
	if ask.isWanted(old) {
		return Decision{Node: old}, nil
	}
	if problems := ask.check(old, *n); len(problems) > 0 {
		return Decision{}, problems
	}
	n.identify(ask.Parent.Tenant())
	n.SystemData = Touched(old.SystemData, ask.By, ask.ByType, ask.At)
	n.State, n.Reason = "", ""
	d.Revision = n.render(ask.Parent, Revision{
		Version: NextVersion(old.newest(), ask.At), Created: ask.At.UTC(),
		By: ask.By, Why: "rollback", Repeats: to.Version, Renderer: ask.Renderer, Own: to.Own,
		Desired: to.Desired,
	}, ask.Parent.atOnce(ask.Joins, ask.Running, to.Own))
	// A person wants it for this very node, whatever has failed before.
	n.Failed, n.Insisted, n.Unreleased = 0, n.Revision, 0
	return d, nil
}

// isWanted reports whether the revision equals the desired one, and is or will be offered.
func (ask Rollback) isWanted(old Node) bool {
	now, to := ask.Desired, ask.To
	offered := old.Assigned == old.Revision || old.Insisted == old.Revision
	return now != nil && offered && old.Failed != old.Revision && now.Defaults == to.Defaults &&
		now.SecretVersion == to.SecretVersion && bytes.Equal(now.Own, to.Own) &&
		equal(old.Desired, paused(*to.Desired, old.Desired))
}

// check checks that the revision fits the node and its cluster as it is now.
func (ask Rollback) check(old, n Node) Problems {
	if n.Chosen.PodCIDR != old.Chosen.PodCIDR {
		return Problems{{"configVersion", "The pod subnet of that revision differs from that of the " +
			"node."}}
	}
	var problems Problems
	if version := n.Chosen.Versions.Kubernetes; version != old.Chosen.Versions.Kubernetes {
		problems = checkSkew(version, ask.Parent.Cluster.Properties.KubernetesVersion)
	}
	return append(problems, checkNode(n, ask.To.Own, ask.Parent)...)
}
