package front

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// put is a PUT or rollback of a node: the request and its effect.
type put struct {
	api *API
	r   *request
	// ask is the request, secret the client secret that came with it.
	ask    flexnode.Put
	secret string
	quota  quota
	to     int64 // the version that a rollback goes back to

	created  bool
	node     flexnode.Node
	revision *flexnode.Revision // the desired one
	applied  int64              // the version that the node runs
	// offered and repeats are stored revisions that new ones take settings from.
	offered, repeats *flexnode.Revision
}

// putNode creates or replaces a node. A change revokes the credentials to join with; new ones are
// made if the caller asks for a URL.
func (a *API) putNode(r *request) (any, error) {
	desired, secret, err := flexnode.ReadPut(r.body, r.resourceID())
	if err != nil {
		return nil, err
	}
	if err := a.checkEndpoint(desired.Monitoring.Endpoint); err != nil {
		return nil, err
	}
	p := &put{api: a, r: r, secret: secret, ask: flexnode.Put{
		ID: r.resourceID(), Desired: desired, SecretGiven: secret != "", URL: r.flag("configUrl"),
		By: r.caller.Name, ByType: r.caller.Type, At: a.Now(), NewUID: uuid.NewString(),
		Renderer: a.Renderer,
	}}
	if err := p.commit(); err != nil {
		return nil, err
	}
	r.after = flexnode.ShownVersion(p.node.Revision)
	if p.ask.URL {
		return p.answerURL()
	}
	return p.answer(nil)
}

// checkEndpoint rejects another provider's URL: a caller must not choose a node's provider.
func (a *API) checkEndpoint(endpoint string) error {
	if endpoint == "" || endpoint == api.ResourceManager ||
		slices.Contains(a.Endpoints, strings.TrimRight(endpoint, "/")) {
		return nil
	}
	return flexnode.Problems{{Target: "properties.monitoring.endpoint", Message: fmt.Sprintf(
		"The endpoint '%s' does not belong to this provider: omit it, or use %s.", shorten(endpoint),
		strings.Join(append([]string{api.ResourceManager}, a.Endpoints...), " or "))}}
}

func (p *put) commit() error {
	try := func() error {
		p.quota = quota{api: p.api, r: p.r, key: p.r.nodeKey()}
		return p.quota.change("node written", p.ahead(),
			func(v *store.View) error { return p.decide(v, p.replaced) })
	}
	err := try()
	if unknown, ok := errors.AsType[subnetsNotKnown](err); ok {
		// If they are still unknown then, the answer has a time to retry.
		err = p.api.awaitCluster(p.r, func(c flexnode.Cluster) bool {
			return c.SubnetsEpoch >= unknown.epoch
		})
		if err == nil {
			err = try()
		}
	}
	return err
}

// ahead returns the keys of the rows that a PUT mostly needs, to read them together.
func (p *put) ahead() []string {
	s, key := p.api.Store, p.r.nodeKey()
	keys := []string{
		s.Clusters.Key(p.r.clusterKey()), s.Nodes.Key(key), s.History.Key(key), s.Secrets.Key(key),
		s.EpochKey(), s.Subscriptions.Key(p.r.subscriptionKey()), s.Layers.Key(p.api.Defaults.ID),
	}
	if _, known := p.api.Index.Poll(key); !known {
		keys = append(keys, s.Tombstones.Key(key), s.Certificates.Key(key))
	}
	return keys
}

// outcome decides about a node in a cluster. An error of the view takes precedence over its own.
type outcome func(
	v *store.View, c flexnode.Cluster, old store.Row[flexnode.Node], kept flexnode.History,
) (flexnode.Decision, error)

// decide decides within a view and writes there. It runs again when rows have changed.
func (p *put) decide(v *store.View, of outcome) error {
	cluster, old, err := p.api.openNode(v, p.r)
	if err != nil {
		return err
	}
	history := p.api.Store.History.Row(v, p.r.nodeKey()).Value
	d, err := of(v, cluster, old, history)
	if err != nil {
		return err
	}
	p.created, p.node, p.r.before = !old.Exists(), d.Node, flexnode.ShownVersion(old.Value.Revision)
	// The answer has the desired revision, even if agents are not offered it yet.
	if p.revision = d.Revision; p.revision == nil {
		p.revision = store.RevisionIn(v, history, d.Node.Revision)
	}
	return p.write(v, history, d)
}

// openNode reads the node of a request and its cluster. It returns an error if the node may not be
// changed or, by a PUT, created.
func (a *API) openNode(
	v *store.View, r *request,
) (c flexnode.Cluster, node store.Row[flexnode.Node], err error) {
	if c, err = a.openCluster(v, r); err != nil {
		return c, node, err
	}
	node = a.Store.Nodes.Row(v, r.nodeKey())
	etag := ""
	if node.Exists() {
		etag = node.Value.ETag()
	} else if r.Method != http.MethodPut {
		return c, node, a.notFound(r)
	}
	return c, node, r.preconditions(etag)
}

// openCluster reads the cluster of a request; an error if nodes may not change.
func (a *API) openCluster(v *store.View, r *request) (flexnode.Cluster, error) {
	row, err := a.Index.Cluster(r.clusterKey()) // as it is stored, mostly
	if err != nil || !a.Store.Clusters.IsAt(v, r.clusterKey(), row.Revision) {
		row = a.Store.Clusters.Row(v, r.clusterKey())
	}
	err = r.allowedIn(a.Store.Subscriptions.Row(v, r.subscriptionKey()).Value.State)
	switch {
	case err != nil:
	case !row.Exists():
		err = noParent(r)
	case row.Value.Deleting():
		err = leaving(r)
	}
	return row.Value, err
}

func (p *put) replaced(
	v *store.View, c flexnode.Cluster, old store.Row[flexnode.Node], kept flexnode.History,
) (flexnode.Decision, error) {
	ask, parent := p.ask, p.api.parent(v, c)
	secret := p.api.Credentials.Compare(v, p.r.nodeKey(), p.secret)
	var before *flexnode.Node
	var last *flexnode.Revision
	var stone *flexnode.Tombstone
	if old.Exists() {
		before, last = &old.Value, store.RevisionIn(v, kept, old.Value.Revision)
		if p.offered = last; old.Value.Assigned != old.Value.Revision {
			p.offered = store.RevisionIn(v, kept, old.Value.Assigned)
		}
		ask.Offered = p.offered
	} else {
		if err := p.free(v); err != nil {
			return flexnode.Decision{}, err
		}
		former, ok, err := p.api.Store.Tombstones.Row(v, p.r.nodeKey()).Value.Of("")
		v.Fail(err)
		if ok {
			stone = &former
		}
	}
	ask.Joins, ask.Running = p.joins(before), p.running(v, old.Value, kept)
	old.Value.Unreleased = old.Value.Lost(p.applied)
	d, problems := flexnode.Decide(ask, before, last, stone, parent, secret)
	if d.NeedsSubnet && len(problems) == 0 {
		var err error
		if ask.Subnet, err = p.api.reserveSubnet(v, p.r, parent.Cluster); err != nil {
			return d, err
		}
		d, problems = flexnode.Decide(ask, before, last, stone, parent, secret)
	}
	if len(problems) > 0 {
		return d, problems
	}
	if d.Revision != nil {
		v.Fail(p.api.Store.KeepLayer(v, parent.Defaults))
	}
	return d, p.claim(old, d.Node)
}

// claim claims the quotas of the subscription that a PUT needs.
func (p *put) claim(old store.Row[flexnode.Node], next flexnode.Node) error {
	if !old.Exists() {
		if err := p.quota.need(fair.Nodes); err != nil {
			return err
		}
	}
	return p.quota.needBytes(old, next)
}

// joins returns flexnode.Joins of a node, by its agent's last report.
func (p *put) joins(old *flexnode.Node) bool {
	a, key := p.api, p.r.nodeKey()
	p.applied = a.Index.Applied(key)
	heard := flexnode.HeardLately(a.Seen.Last(key), a.Now())
	return flexnode.Joins(old, p.applied, heard, p.ask.URL)
}

// running returns the configurations that a node may run; none if one of them is not kept.
func (p *put) running(
	v *store.View, n flexnode.Node, kept flexnode.History,
) (all []map[string]any) {
	for _, version := range n.MayRun(p.applied) {
		config, err := p.api.Store.Kept(v.Context(), kept, version)
		if err != nil { // the reconciler compares it, too
			p.api.Log.Warn("cannot read what a node runs", "node", p.r.nodeKey(), "error", err)
		}
		if config == nil {
			return nil
		}
		all = append(all, config)
	}
	return all
}

// free returns an error if another machine has a valid certificate of the node's name, with which
// it could read what the node's pods read.
func (p *put) free(v *store.View) error {
	until := p.api.Store.Certificates.Row(v, p.r.nodeKey()).Value.HeldUntil(p.api.Now())
	if until.IsZero() || p.r.flag("acceptOldCertificate") {
		return nil
	}
	return arm.Errorf(409, "NameNotFree", "The previous machine of '%s' has not left its cluster, "+
		"or was shut out, and can read the same data as the pods of a new node of this name. Start a "+
		"machine that was not shut out, so that it leaves, or wait until the last certificate "+
		"expires, at %s. If the machine was erased, send the request with acceptOldCertificate=true.",
		shorten(p.r.name("node")), until.UTC().Format(time.RFC3339))
}

func (p *put) write(v *store.View, history flexnode.History, d flexnode.Decision) error {
	s, c, key := p.api.Store, p.api.Credentials, p.r.nodeKey()
	if d.StoreSecret {
		v.Fail(c.KeepSecret(v, key, p.secret, d.Node.SecretVersion))
	}
	if d.DropSecret {
		s.Secrets.Delete(v, key)
	}
	switch {
	case p.ask.URL:
		if p.created {
			p.node.State = api.Creating
		}
		v.Fail(p.quota.issue(v, &p.node))
	case d.Changed:
		v.Fail(c.Release(v, &p.node))
	}
	if d.Revision != nil {
		if d.Offered != nil {
			v.Fail(c.Sign(v, p.node.UID, d.Offered, p.offered))
			history = history.With(*d.Offered, p.applied)
		}
		v.Fail(c.Sign(v, p.node.UID, d.Revision, p.repeats))
		v.Fail(s.History.Put(v, key, history.With(*d.Revision, p.node.Assigned, p.applied)))
	}
	if !d.Write && !p.ask.URL {
		return nil
	}
	return s.Nodes.Put(v, key, p.node)
}

// answerURL waits for the credential, and answers with the node as it is then and its URL.
func (p *put) answerURL() (any, error) {
	if err := p.api.awaitCredential(p.r, p.node); err != nil {
		return nil, err
	}
	k, err := p.api.kept(p.r)
	if err != nil {
		return nil, err
	}
	// If another caller has changed the node since, answer with this caller's version: with a later
	// ETag it could undo the other change without having seen it.
	now := k.node.Value
	if now.UID == p.node.UID && now.Credential == p.node.Credential && now.WantsSame(p.node) {
		p.node = now
		if p.revision, err = k.offered(true); err != nil {
			return nil, err
		}
	}
	url, err := p.api.Credentials.URL(p.r.Context(), p.node.Credential)
	if err != nil {
		return nil, err
	}
	return p.answer(url)
}

// answer answers with the node, and with an operation if the caller has to wait for its cluster.
func (p *put) answer(url *api.ConfigURL) (any, error) {
	shown, err := p.api.show(p.r, p.node, p.revision)
	if err != nil {
		return nil, err
	}
	if url != nil {
		shown.Properties.ConfigURL = url.ConfigURL
		shown.Properties.ConfigURLExpires = new(url.ConfigURLExpires)
	}
	if state := shown.Properties.ProvisioningState; state == api.Creating || state == api.Updating {
		target := flexnode.Operation{Kind: putNodeKind, Target: p.node.ID, UID: p.node.UID}
		p.api.accept(p.r, target, false)
	}
	return resource{p.created, shown.ETag, shown}, nil
}

// guesses is the number of subnets that are tried for a node before the whole pool is read.
const guesses = 8

// reserveSubnet reserves a pod subnet for a node, in the change that writes the node: the one that
// its Node has, if the node was deleted or the store restored.
func (a *API) reserveSubnet(v *store.View, r *request, c flexnode.Cluster) (string, error) {
	if epoch := a.Store.Epoch(v); c.SubnetsEpoch < epoch {
		return "", subnetsNotKnown{epoch}
	}
	p, own, taken := c.Properties, r.nodeKey(), map[string]bool(nil)
	for n := range guesses { // without conditions, since other PUTs write these rows
		key, subnet, _ := flexnode.Slot(r.clusterKey(), own, p.PodCIDR, p.NodeCIDRMask, n)
		row, err := a.Store.PodCIDRs.Get(v.Context(), key)
		v.Fail(err)
		if row.Value == own && a.Store.PodCIDRs.Row(v, key).Value == own {
			return subnet, nil
		}
	}
	for n := 0; ; n++ {
		key, subnet, ok := flexnode.Slot(r.clusterKey(), own, p.PodCIDR, p.NodeCIDRMask, n)
		if !ok {
			return "", arm.Errorf(409, "PodCIDRExhausted",
				"All %d pod subnets of the cluster are in use. Delete flexNodeConfigs that are not needed.",
				flexnode.Slots(p.PodCIDR, p.NodeCIDRMask))
		}
		if n == guesses { // the pool is rather full
			rows, _, err := a.Store.PodCIDRs.List(v.Context(), r.clusterKey()+"/")
			v.Fail(err)
			taken = make(map[string]bool, len(rows))
			for _, row := range rows {
				taken[row.Key] = row.Value != own
			}
		}
		if !taken[key] && slices.Contains([]string{"", own}, a.Store.PodCIDRs.Row(v, key).Value) {
			return subnet, a.Store.PodCIDRs.Put(v, key, own)
		}
	}
}

// subnetsNotKnown is the error while the pod subnets of the cluster's Nodes are unknown: they have
// not been seen in that epoch of the store. This lasts about a second after the registration of a
// cluster, which may have Nodes of a previous registration, and after a restore.
type subnetsNotKnown struct{ epoch int64 }

func (subnetsNotKnown) Error() string { return "the pod subnets of the Nodes are not known" }

// ARM returns the error that the caller sees.
func (subnetsNotKnown) ARM() *arm.Error {
	return arm.Errorf(503, "PodSubnetsNotKnown",
		"The provider does not know yet which pod subnets the cluster's Nodes have. Try again: it "+
			"takes about a second once the cluster is reached, as its property 'reachable' tells.")
}
