package front

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// getNode answers GET of one node. A conditional GET, which is an agent's poll, costs the store
// nothing as long as nothing has changed; it waits for that if its caller prefers to.
func (a *API) getNode(r *request) (any, error) {
	wait := a.Waiters.begin(r)
	if wait.entry != nil {
		r.known = nil // what has changed before it began does not wake it
	}
	found, err := a.awaitNode(r, &wait)
	if r.caller.isMachine() && r.known != nil && r.known.Second {
		r.answer.Header()[machinekey.SecondHeader] = []string{"true"}
	}
	applied := wait.applied()
	a.askDiagnosis(r)
	r.waited = wait.end()
	a.tellPace(r, applied, r.waited)
	if applied {
		seconds := strconv.Itoa(int(wait.granted / time.Second))
		r.answer.Header().Set("Preference-Applied", "wait="+seconds)
	}
	switch {
	case err != nil:
		return nil, err
	case found.same != "":
		h := r.answer.Header()
		h["Etag"] = []string{found.same}    // in its canonical form: each poll sets it
		delete(h, "X-Content-Type-Options") // of a body, and this answer has no body
		r.answer.WriteHeader(http.StatusNotModified)
		return nil, nil
	}
	shown, err := a.show(r, found.node, found.revision)
	return resource{false, shown.ETag, shown}, err
}

// found holds the answer to a GET of a node: the node, or the ETag that the caller knows.
type found struct {
	node     flexnode.Node
	revision *flexnode.Revision
	same     string
}

// awaitNode finds a node: if the request waits, until it is another than the caller knows, its
// agent may begin, or is asked for a diagnosis. Each time the caller must be allowed to have it.
func (a *API) awaitNode(r *request, wait *wait) (found, error) {
	for woken := false; ; woken = true {
		f, err := a.findNode(r)
		if err != nil || f.same == "" || wait.entry == nil || woken && a.wakes(r) {
			return f, err
		}
		more := false
		r.place.Rest(func() { more, err = wait.next(r) })
		r.known = nil
		if err != nil || !more {
			return f, err
		}
		if err := a.authorizeAgain(r); err != nil {
			return f, err
		}
	}
}

// wakes reports whether the node's agent may begin, or is asked for a diagnosis.
func (a *API) wakes(r *request) bool {
	row, err := a.Index.Node(r.nodeKey())
	return err == nil && (row.Value.Released() || row.Value.Diagnose != nil)
}

// authorizeAgain is authorize after a wait. Who was the node is looked for in the store before
// anybody is asked for his roles: all nodes of a cluster may be deleted at once.
func (a *API) authorizeAgain(r *request) error {
	if !r.own {
		return a.authorize(r)
	}
	if !a.ownNode(r) {
		own, err := a.ownStoredNode(r)
		if err == nil && !own {
			err = a.askRole(r)
		}
		if err != nil || !own {
			return err
		}
	}
	if r.caller.isMachine() {
		return a.checkBoot(r)
	}
	return nil
}

// findNode finds a node in the index if the caller knows that, else in the store.
func (a *API) findNode(r *request) (found, error) {
	condition := first(r.Header["If-None-Match"])
	poll := r.known
	if poll == nil {
		poll = a.lookUp(r)
	}
	if condition != "" && poll != nil && named(r.uid, poll.UID) {
		a.heard(r, *poll)
		if etag := r.same(condition, poll.ETag); etag != "" {
			return found{same: etag}, nil
		}
	}
	if err := r.askStore(); err != nil {
		return found{}, err
	}
	k, err := a.keptNode(r)
	if err != nil {
		return found{}, err
	}
	n := k.node.Value
	if err := a.mayHave(r, n); err != nil {
		return found{}, err
	}
	if condition == "" { // the first poll of an agent that knows no ETag yet
		a.heard(r, pollOf(n))
	} else if etag := r.same(condition, n.ETag()); etag != "" { // the index is behind
		return found{same: etag}, nil
	} else if n.IsLater(condition) { // the store was restored
		return found{same: condition}, nil
	}
	revision, err := k.offered(!r.asksOffer())
	return found{node: n, revision: revision}, err
}

// lookUp asks the index what it knows of the node now; nil for nothing.
func (a *API) lookUp(r *request) *store.Poll {
	r.known = nil
	if poll, ok := a.Index.Poll(r.nodeKey()); ok {
		r.known = &poll
	}
	return r.known
}

// asksOffer reports whether a GET asks for what agents are offered, not for what the owner wants.
func (r *request) asksOffer() bool { return r.own || r.node || r.uid != "" }

// same returns the ETag of an answer 304; "" if a caller with such a condition is to have the node.
// An agent is not answered for a revision that it is not offered.
func (r *request) same(condition, etag string) string {
	if listed(condition, etag) {
		return etag
	}
	if r.asksOffer() && flexnode.SameOffer(condition, etag) {
		return condition
	}
	return ""
}

// named reports whether a uid that a caller names, if it does, is that of a node.
func named(uid, of string) bool { return uid == "" || uid == of }

// show is the node of a request as callers see it, with the configuration of a revision of it.
func (a *API) show(
	r *request, n flexnode.Node, revision *flexnode.Revision,
) (shown api.FlexNodeConfig, err error) {
	var joining *flexnode.JoinCredential
	if n.Credential != "" {
		row, err := a.Store.Credentials.Get(r.Context(), n.Credential)
		if err != nil {
			return shown, err
		}
		if told := credential.Told(row.Value); row.Exists() {
			joining = &told
		}
	}
	status, err := a.status(r.nodeKey(), n, joining, a.reachable(r.clusterKey()))
	if err != nil || revision == nil {
		return flexnode.Shown(n, nil, nil, status), err
	}
	config, err := a.Store.Config(r.Context(), *revision, flexnode.Grants{})
	return flexnode.Shown(n, revision, config, status), err
}

// status returns what agent and cluster say of a node. joining is nil where it is not read.
func (a *API) status(
	key string, n flexnode.Node, joining *flexnode.JoinCredential, reachable bool,
) (*api.Status, error) {
	row, err := a.Index.Status(key)
	return flexnode.StatusOf(flexnode.Evidence{
		Node: n, Status: row.Value, Seen: a.Seen.Last(key), Reachable: reachable,
		Credential: joining, Provider: a.Renderer, Now: a.Now(),
	}), err
}

// reachable reports whether a cluster answers.
func (a *API) reachable(clusterKey string) bool {
	row, err := a.Index.Cluster(clusterKey)
	return err == nil && row.Value.Properties.Reachable
}

// isNode reports whether a request is of a node (Caller.isNode). The key of the node's machine does
// not keep its identity in Azure from registering a key.
func (r *request) isNode(identity string, former flexnode.Former, machineKey string) bool {
	if r.route.registers && !r.caller.isMachine() {
		return r.caller.hasIdentity(identity, former)
	}
	return r.caller.isNode(identity, former, machineKey)
}

// ownNode reports whether a request is of a node about itself, as far as the index knows; the row
// that is answered with is compared again (mayHave).
func (a *API) ownNode(r *request) bool {
	poll := a.lookUp(r)
	r.node = poll != nil && named(r.uid, poll.UID) &&
		r.isNode(poll.Identity, poll.Former, poll.MachineKey)
	r.own = r.node
	return r.own
}

// ownStoredNode is as ownNode by the store, for who would be refused otherwise: the index may be
// behind, and does not know the nodes that were deleted.
func (a *API) ownStoredNode(r *request) (bool, error) {
	row, err := a.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return false, err
	}
	n := row.Value
	if row.Exists() && named(r.uid, n.UID) {
		r.node = r.isNode(n.Identity, n.Former, n.MachineKey)
		r.own = r.node
		return r.own, nil
	}
	stone, ok, err := a.tombstone(r)
	r.own = ok && r.caller.isNode(stone.Identity, stone.Former, stone.MachineKey)
	return r.own, err
}

// mayHave is an error if a caller that was let in as a node is not the one whose row was read.
func (a *API) mayHave(r *request, n flexnode.Node) error {
	if !r.own || r.caller.isNode(n.Identity, n.Former, n.MachineKey) {
		return nil
	}
	return a.askRole(r)
}

// pollOf returns the index's data of a node.
func pollOf(n flexnode.Node) store.Poll {
	return store.Poll{
		UID: n.UID, Identity: n.Identity, Former: n.Former, MachineKey: n.MachineKey,
		Joining: n.Credential != "",
	}
}

// heard takes down that a node has polled or reported. Those that wait for that are informed too:
// its credential, when it joins without a token, and its former identities.
func (a *API) heard(r *request, poll store.Poll) {
	if r.node && poll.Joining && r.caller.is(poll.Identity) {
		a.notePrincipal(r)
	}
	if r.Header[trialHeader] != nil { // the node may go back to a former identity
		return
	}
	if !r.node && !r.caller.isNodeBehindManager(poll, r.uid) {
		return
	}
	key := r.nodeKey()
	a.Seen.Note(key, a.Now())
	if !r.caller.isPresent(poll, r.uid) || poll.Former == "" && !poll.Joining {
		return
	}
	node, err := a.Index.Node(key)
	if err != nil || !node.Exists() ||
		poll.Former == "" && !node.Value.Desired.KubernetesAuth.UseAzureAuth { // its token tells
		return
	}
	last, _ := a.heardOf.Get(key)
	if a.Now().Before(last.Add(heardAgain)) || r.askStore() != nil { // a later poll notes it
		return
	}
	if err := a.Credentials.Seen(r.Context(), key, node.Value); err != nil {
		a.Log.Warn("cannot note that a node has joined", "node", key, "error", err)
		return
	}
	a.heardOf.Add(key, a.Now())
}

// notePrincipal writes down the object id of an identity that polls before it joins.
func (a *API) notePrincipal(r *request) {
	key := r.nodeKey()
	noted := func(n flexnode.Node) bool {
		return n.Joins(r.caller.ObjectID).Principal == n.Principal || !r.caller.is(n.Identity)
	}
	known, err := a.Index.Node(key)
	if err != nil || !known.Exists() || noted(known.Value) || r.askStore() != nil {
		return
	}
	err = a.change(r, "identity seen", func(v *store.View) error {
		row := a.Store.Nodes.Row(v, key)
		if !row.Exists() || noted(row.Value) {
			return nil
		}
		return a.Store.Nodes.Put(v, key, row.Value.Joins(r.caller.ObjectID))
	})
	if err != nil {
		a.Log.Warn("cannot note the identity that a node joins with", "node", key, "error", err)
	}
}

// isPresent reports whether a caller that counts as a node has its present identity. An Arc machine
// behind Resource Manager has it as long as it can be no former one.
func (c Caller) isPresent(poll store.Poll, uid string) bool {
	return c.isMachine() || c.is(poll.Identity) ||
		poll.Former == "" && c.isMachineBehindManager(poll, uid)
}

// heardAgain is the time between notes that a node was heard of, while something waits for them.
const heardAgain = 10 * time.Second

// isNodeBehindManager reports whether a caller that Resource Manager has authorized is the node.
func (c Caller) isNodeBehindManager(poll store.Poll, uid string) bool {
	return c.Trusted && named(uid, poll.UID) && c.hasIdentity(poll.Identity, poll.Former) ||
		c.isMachineBehindManager(poll, uid)
}

// isMachineBehindManager reports whether a caller names the uid of a present or former Arc machine,
// of which Resource Manager tells no id.
func (c Caller) isMachineBehindManager(poll store.Poll, uid string) bool {
	isMachine := func(identity string) bool { return strings.HasPrefix(identity, "mirid:") }
	return c.Trusted && uid != "" && uid == poll.UID &&
		(isMachine(poll.Identity) || slices.ContainsFunc(poll.Former.All(), isMachine))
}

// TombstoneInfo is the type of a 404's additional info for a node that its owner has deleted.
const TombstoneInfo = "FlexNodeConfigTombstone"

// tombstone is that of the node that the caller says it is of, or of the last that was deleted.
func (a *API) tombstone(r *request) (flexnode.Tombstone, bool, error) {
	row, err := a.Store.Tombstones.Get(r.Context(), r.nodeKey())
	if err != nil {
		return flexnode.Tombstone{}, false, err
	}
	return row.Value.Of(r.uid)
}

// notFound is the answer for a node that is not there. Only by the tombstone in it an agent knows
// that its machine is to be given back.
func (a *API) notFound(r *request) error {
	stone, ok, err := a.tombstone(r)
	if err != nil {
		return err
	}
	e := arm.Errorf(404, "ResourceNotFound",
		"The Resource '%s/%s/%s' under resource group '%s' was not found.",
		api.ResourceType, r.names.of("cluster"), r.names.of("node"), r.names.of("group"))
	if ok && stone.Wipe {
		epoch, signature := a.Credentials.Signature(stone.Signed)
		e.AdditionalInfo = []arm.Info{{Type: TombstoneInfo, Info: api.Tombstone{
			DeletedAt: stone.Deleted, UID: stone.UID, ConfigVersion: strconv.FormatInt(stone.Revision, 10),
			Epoch: epoch, Signature: signature,
		}}}
		return e
	}
	cluster, err := a.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil {
		return err
	}
	if !cluster.Exists() {
		return noParent(r)
	}
	return e
}
