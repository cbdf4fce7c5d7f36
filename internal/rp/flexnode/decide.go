package flexnode

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Parent holds the cluster of a node and the layers that a revision is rendered with now.
type Parent struct {
	Cluster Cluster
	// FactsLayer is the layer that Cluster.Facts names; nil if the cluster was never reached.
	FactsLayer *Layer
	// Defaults is the layer of the operator's defaults; nil for none.
	Defaults *Layer
	// Installation names this provider; Nodes have it as a label.
	Installation string
}

// InstallationLabel is the label of a Node or Secret that names its installation.
const InstallationLabel = "flexnode.azure.com/installation"

// mark adds the installation's label to an own layer, whose labels replace those of the defaults.
func (p Parent) mark(own object) {
	node, _ := own["node"].(object)
	if p.Installation == "" || node == nil {
		return
	}
	labels, given := node["labels"].(object)
	if !given {
		labels, _ = in(p.Defaults.settings(), "node", "labels").(object)
	}
	labels = copied(labels)
	labels[InstallationLabel] = p.Installation
	node["labels"] = labels
}

func (p Parent) factsID() string {
	return cmp.Or(p.Cluster.Facts, p.FactsLayer.ID)
}

// Tenant returns the tenant of the cluster, as its nodes receive it; "" while it is not known.
func (p Parent) Tenant() string { return textIn(p.FactsLayer.settings(), "azure", "tenantId") }

// directNetworks is the agent's cni setting for networks that pods reach without masquerading.
const directNetworks = "nonMasqueradeCIDRs"

// podNetwork returns the network that nodes get their pod subnets from; "" without one, or where
// the operator's defaults set directNetworks.
func (p Parent) podNetwork() string {
	cni, _ := p.Defaults.settings()["cni"].(object)
	if _, given := cni[directNetworks]; given {
		return ""
	}
	network, err := netip.ParsePrefix(p.Cluster.Properties.PodCIDR)
	if err != nil || network.Addr().Is4In6() {
		return ""
	}
	return network.String()
}

// hasDirectNetworks reports whether the own layer of a revision sets directNetworks.
func (r Revision) hasDirectNetworks() bool {
	own, err := readObject(r.Own)
	return err == nil && in(own, "cni", directNetworks) != nil
}

// Secret describes the stored client secret of a node.
type Secret struct {
	Version int64 // of the stored secret
	Known   bool  // a secret is stored
	Same    bool  // the given secret equals it
}

// Put holds the request of a PUT.
type Put struct {
	ID      string // in the caller's casing
	Desired Desired
	// SecretGiven reports that the request has a client secret, URL that it asks for a URL.
	SecretGiven, URL bool
	By, ByType       string
	At               time.Time
	NewUID           string // for a new node
	Renderer         string
	// Joins reports that no machine follows the node: the next one joins with the new revision.
	Joins bool
	// Running holds the configurations that the node may run (Node.MayRun), none if one of them is
	// not known: Admit then decides when the node is offered another.
	Running []map[string]any
	// Offered is the revision that agents are offered; nil for none.
	Offered *Revision
	// Subnet is the pod subnet that was reserved after Decision.NeedsSubnet.
	Subnet string
}

// Joins reports whether a node is offered its desired revision at once: no machine that follows it
// runs it. heard reports that an agent was heard of lately, url that the caller asks for a URL.
func Joins(n *Node, applied int64, heard, url bool) bool {
	return n == nil || applied == 0 || !heard && (url || !n.Desired.ContinuousMonitoring)
}

// MayRun returns the revisions that a node may run: the reported one and the assigned one, which
// the agent may have applied since. It returns none while a change that needs a slot is under way.
// A revision that disturbs neither is assigned by the write that makes it desired, and reaches the
// agent with the first answer.
func (n Node) MayRun(applied int64) []int64 {
	if applied == 0 || n.Failed != 0 || n.Attempt.pending() || n.Lost(applied) != 0 {
		return nil
	}
	return slices.Compact([]int64{applied, n.Assigned})
}

// atOnce reports whether the write that makes a revision with a configuration also assigns it.
func atOnce(joins bool, running []object, next object) bool {
	if joins || len(running) == 0 {
		return joins
	}
	disturbs := func(from object) bool { return ChangeOf(from, next).needsSlot(joins) }
	return !slices.ContainsFunc(running, disturbs)
}

// Decision holds the effect of a PUT on a node.
type Decision struct {
	Node Node
	// Revision is the new configuration; nil if it is unchanged, or cannot be rendered yet.
	Revision *Revision
	// Offered replaces Put.Offered, with the new client secret; nil for none.
	Offered *Revision
	// Changed reports that the desired state changed: credentials to join with are revoked.
	Changed bool
	// Write reports that the row changes: Changed, another casing of the id, or a new URL.
	Write bool
	// StoreSecret stores the client secret as Node.SecretVersion, DropSecret deletes the stored
	// one.
	StoreSecret, DropSecret bool
	// NeedsSubnet asks to reserve a pod subnet and call Decide again; all else is unset then.
	NeedsSubnet bool

	own object // the checked own layer of the node
}

// Decide returns the effect of a PUT. old is nil for a new node, last is its desired revision, nil
// if it was never rendered; stone is the tombstone of a previous node of that name, or nil.
//
// A PUT that only pauses or resumes the node writes that alone.
//
// An equal PUT changes nothing, whatever has changed in the cluster, the defaults and the provider
// since, except that a node which could not be rendered is tried again, and one with Unreleased is
// released. If the PUT asks for a URL, the node is Creating or Updating until the URL is live.
// Decide does not change Node.Credential: the caller that writes the node revokes it when Changed,
// or issues another.
func Decide(
	p Put, old *Node, last *Revision, stone *Tombstone, parent Parent, secret Secret,
) (Decision, Problems) {
	p.Desired, _ = WithoutSecret(complete(p.Desired))
	d, problems := decideSecret(p, old, secret)
	if len(problems) > 0 {
		return Decision{}, problems
	}
	d.Changed = old == nil || d.StoreSecret || d.DropSecret ||
		!equal(paused(old.Desired, p.Desired), p.Desired) ||
		old.Unreleased != 0 && equal(old.Desired, p.Desired)
	retry := old != nil && last == nil && (parent.FactsLayer != nil || old.State == api.Failed)
	if !d.Changed && !retry {
		d.Node = *old
		d.Node.ID = p.ID
		d.Write = p.URL || p.ID != old.ID
		if pause := p.Desired.UpgradePolicy.Paused; pause != old.Desired.UpgradePolicy.Paused {
			d.Write, d.Node.Desired = true, paused(old.Desired, p.Desired)
			d.Node.SystemData = Touched(old.SystemData, p.By, p.ByType, p.At)
		}
		if p.URL {
			d.Node.State = d.Node.busy()
		}
		return d, nil
	}
	d.Write = true
	if problems := d.next(p, old, last, parent); len(problems) > 0 || d.NeedsSubnet {
		return d, problems
	}
	whole := layered(d.own, parent.Defaults, parent.FactsLayer, Grants{})
	assigns := atOnce(p.Joins, p.Running, whole)
	if !assigns {
		d.offerSecret(p, parent)
	}
	d.version(p, stone, parent, assigns)
	if d.Revision != nil {
		d.Revision.Content = Content(whole)
	}
	return d, nil
}

// offerSecret offers the assigned revision again with the new client secret of the same client:
// that restarts nothing, so it does not wait for changes that do.
func (d *Decision) offerSecret(p Put, parent Parent) {
	o := p.Offered
	if !d.StoreSecret || o == nil || parent.FactsLayer == nil {
		return
	}
	was, _ := principalOf(o.Desired.AzureAuth)
	now, _ := principalOf(p.Desired.AzureAuth)
	if was == nil || was.ClientID != now.ClientID || was.ClientTenant != now.ClientTenant {
		return
	}
	r := *o
	r.SecretVersion, r.By, r.Why = d.Node.SecretVersion, p.By, "put"
	d.Offered = d.Node.reoffer(r, p.At, p.Renderer)
}

// reoffer assigns a copy of a revision with a later version.
func (n *Node) reoffer(r Revision, at time.Time, renderer string) *Revision {
	r.Version, r.Repeats = NextVersion(n.newest(), at), r.Version
	r.Created, r.Renderer = at.UTC(), renderer
	if n.Attempt.pending() && n.Attempt.Revision == n.Assigned {
		n.Attempt = new(*n.Attempt)
		n.Attempt.Revision = r.Version
	}
	n.Assigned = r.Version
	return &r
}

// next sets the node that a PUT makes, without version and revision.
func (d *Decision) next(p Put, old *Node, last *Revision, parent Parent) Problems {
	problems := Validate(p.Desired)
	problems.unless(len(encode(p.Desired)) <= maxDesired, "properties",
		"The properties are larger than %d bytes.", maxDesired)
	problems = append(problems, checkName(p.ID, parent)...)
	n := &d.Node
	c := parent.chooser(p.Desired.Versions)
	if old == nil {
		n.UID = p.NewUID
	} else if old.Revision != 0 {
		c.asked, c.chosen = old.Desired.Versions, old.Chosen.Versions
	}
	n.ID, n.Desired = p.ID, p.Desired
	var skewed Problems
	n.Chosen.Versions, skewed = c.choose()
	if problems = append(problems, skewed...); len(problems) > 0 {
		return problems
	}
	n.Chosen.PodCIDR = cmp.Or(n.Chosen.PodCIDR, p.Subnet)
	if parent.Cluster.Properties.PodCIDR != "" && n.Chosen.PodCIDR == "" {
		d.NeedsSubnet = true
		return nil
	}
	network := parent.podNetwork()
	if network != "" && last != nil && !last.hasDirectNetworks() {
		network = "" // its pods hide behind the machine, as they did
	}
	d.own, problems = n.wholeOwnLayer(network, parent)
	return problems
}

// maxDesired limits the owner's settings, as JSON: several rows of one transaction hold them.
const maxDesired = 16 << 10

// version gives the node its next version, and renders it once the facts are known.
func (d *Decision) version(p Put, stone *Tombstone, parent Parent, atOnce bool) {
	n := &d.Node
	n.identify(parent.Tenant())
	n.SystemData = Touched(n.SystemData, p.By, p.ByType, p.At)
	state := ""
	if parent.FactsLayer == nil || p.URL {
		state = n.busy()
	}
	n.Reason, n.State = "", state
	version := NextVersion(max(n.newest(), cmp.Or(stone, &Tombstone{}).Revision), p.At)
	if parent.FactsLayer == nil {
		n.Floor = version
		return
	}
	d.Revision = n.render(parent, Revision{
		Version: version, Created: p.At.UTC(), By: p.By, Why: "put", Renderer: p.Renderer,
		Own: appendValue(nil, d.own), Desired: &n.Desired,
	}, atOnce)
	n.Failed, n.Insisted, n.Unreleased, n.Before = 0, 0, 0, 0
}

func (n *Node) busy() string {
	if n.Revision == 0 && n.Floor == 0 || n.State == api.Creating {
		return api.Creating
	}
	return api.Updating
}

// render completes a revision with the node's own layer, and points the node to it.
func (n *Node) render(parent Parent, r Revision, atOnce bool) *Revision {
	r.Facts = parent.factsID()
	if parent.Defaults != nil {
		r.Defaults = parent.Defaults.ID
	}
	if sp, _ := principalOf(n.Desired.AzureAuth); sp != nil {
		r.SecretVersion = n.SecretVersion
	}
	n.point(r, atOnce)
	return &r
}

// point makes a newer revision the desired one, and assigns it if atOnce; else Admit does.
func (n *Node) point(r Revision, atOnce bool) {
	if atOnce || n.Assigned == 0 {
		n.Assigned, n.Facts = r.Version, r.Facts
	}
	n.Revision, n.Tried, n.Floor = r.Version, "", 0
}

// Touched returns the system data of a resource after a change.
func Touched(s api.SystemData, by, byType string, at time.Time) api.SystemData {
	at = at.UTC().Truncate(time.Second)
	if s.CreatedAt.IsZero() {
		s.CreatedBy, s.CreatedByType, s.CreatedAt = by, byType, at
	}
	s.LastModifiedBy, s.LastModifiedByType, s.LastModifiedAt = by, byType, at
	return s
}

// decideSecret decides about the client secret. A PUT without one keeps that of the same client.
func decideSecret(p Put, old *Node, secret Secret) (Decision, Problems) {
	var d Decision
	var was *ServicePrincipalAuth
	if old != nil {
		d.Node = *old
		was, _ = principalOf(old.Desired.AzureAuth)
	}
	sp, at := principalOf(p.Desired.AzureAuth)
	switch {
	case sp == nil:
		d.DropSecret, d.Node.SecretVersion = secret.Known, 0
	case p.SecretGiven && secret.Known && secret.Same:
		d.Node.SecretVersion = secret.Version
	case p.SecretGiven:
		n := &d.Node // all versions of a new node are 0
		d.StoreSecret = true
		n.SecretVersion = NextVersion(max(secret.Version, n.SecretVersion, n.Revision, n.Floor), p.At)
	case secret.Known && was != nil && strings.EqualFold(was.ClientID, sp.ClientID):
	default:
		return d, Problems{{at + ".clientSecret",
			"The client secret is needed: none is stored for this client id."}}
	}
	return d, nil
}

// paused returns the settings of an owner with the pause of as.
func paused(d, as Desired) Desired {
	d.UpgradePolicy.Paused = as.UpgradePolicy.Paused
	return d
}

// WantsSame reports whether two nodes have the same desired state, the client secret included.
func (n Node) WantsSame(o Node) bool {
	return n.SecretVersion == o.SecretVersion && equal(n.Desired, o.Desired)
}

// equal reports whether two settings of owners are equal, byte for byte.
func equal(a, b Desired) bool { return bytes.Equal(encode(complete(a)), encode(complete(b))) }

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
// revision, since versions do not go back. One that is desired and has not failed stays, insisted
// on. The error is an *arm.Error or Problems.
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
	own, err := readObject(to.Own)
	if err != nil {
		return Decision{}, fmt.Errorf("cannot read configuration %d: %w", to.Version, err)
	}
	n.Chosen = chosenIn(own)
	if ask.isWanted(old) {
		d = Decision{Node: old, Write: old.Insisted != old.Revision}
		d.Node.Insisted, d.Node.FailedChanges = old.Revision, nil
		return d, nil
	}
	if problems := ask.check(old, *n, own); len(problems) > 0 {
		return Decision{}, problems
	}
	n.identify(ask.Parent.Tenant())
	n.SystemData = Touched(old.SystemData, ask.By, ask.ByType, ask.At)
	n.State, n.Reason = "", ""
	whole := layered(own, ask.Parent.Defaults, ask.Parent.FactsLayer, Grants{})
	d.Revision = n.render(ask.Parent, Revision{
		Version: NextVersion(old.newest(), ask.At), Created: ask.At.UTC(),
		By: ask.By, Why: "rollback", Repeats: to.Version, Renderer: ask.Renderer, Own: to.Own,
		Desired: to.Desired,
	}, atOnce(ask.Joins, ask.Running, whole))
	// A person wants it for this very node, whatever has failed before.
	n.Failed, n.Insisted, n.Unreleased, n.Before, n.FailedChanges = 0, n.Revision, 0, 0, nil
	return d, nil
}

// isWanted reports whether the revision equals the desired one, which the node can still reach.
func (ask Rollback) isWanted(old Node) bool {
	now, to := ask.Desired, ask.To
	return now != nil && old.Failed != old.Revision && old.Unreleased == 0 &&
		now.Defaults == to.Defaults && now.SecretVersion == to.SecretVersion &&
		bytes.Equal(now.Own, to.Own) && equal(old.Desired, paused(*to.Desired, old.Desired))
}

// check checks that the revision fits the node and its cluster as it is now.
func (ask Rollback) check(old, n Node, own object) Problems {
	if n.Chosen.PodCIDR != old.Chosen.PodCIDR {
		return Problems{{"configVersion", "The pod subnet of that revision differs from that of the " +
			"node."}}
	}
	var problems Problems
	if version := n.Chosen.Versions.Kubernetes; version != old.Chosen.Versions.Kubernetes {
		problems = checkSkew(version, ask.Parent.Cluster.Properties.KubernetesVersion)
	}
	return append(problems, checkNode(n, own, ask.Parent)...)
}
