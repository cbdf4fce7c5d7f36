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

// getNode answers GET of one node. A conditional GET, such as an agent's poll, does not read the
// store as long as nothing has changed; it waits for a change if its caller prefers to.
func (a *API) getNode(r *request) (any, error) {
	wait := a.Waiters.begin(r)
	if wait != nil {
		r.known = nil // a change before it began does not wake it
	}
	found, err := a.awaitNode(r, wait)
	if r.caller.isMachine() && r.known != nil && r.known.Second {
		r.answer.Header().Set(machinekey.SecondHeader, "true")
	}
	applied := wait.applied()
	a.askDiagnosis(r)
	r.waited = wait.end()
	waited := r.waited
	if !applied { // a replica that stops ends all polls at once: the next ones are spread
		waited = 0
	}
	a.tellPace(r, wait != nil, waited)
	if applied {
		seconds := strconv.Itoa(int(wait.granted / time.Second))
		r.answer.Header().Set("Preference-Applied", "wait="+seconds)
	}
	switch {
	case err != nil:
		return nil, err
	case found.same != "":
		r.answer.Header().Set("ETag", found.same)
		r.answer.Header().Del("X-Content-Type-Options") // this answer has no body
		r.answer.WriteHeader(http.StatusNotModified)
		return nil, nil
	}
	shown, err := a.show(r, found.node, found.revision)
	return resource{false, shown.ETag, shown}, err
}

// found is the answer to a GET of a node: the node, or the ETag that the caller has.
type found struct {
	node     flexnode.Node
	revision *flexnode.Revision
	same     string
}

// awaitNode finds a node. If the request waits, it returns once the node differs from the caller's,
// its agent may begin, or a diagnosis is requested. It authorizes the caller again each time.
func (a *API) awaitNode(r *request, wait *waiter) (found, error) {
	for woken := false; ; woken = true {
		f, err := a.findNode(r)
		if err != nil || f.same == "" || wait == nil || woken && a.wakes(r) {
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

// wakes reports whether the node's agent may begin, or a diagnosis is requested.
func (a *API) wakes(r *request) bool {
	row, err := a.Index.Node(r.nodeKey())
	return err == nil && (row.Value.Released() || row.Value.Diagnose != nil)
}

// authorizeAgain is authorize after a wait. It looks for a former node in the store before it asks
// for the caller's roles: all nodes of a cluster may be deleted at once.
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

// findNode finds a node in the index if the caller's copy is current, else in the store.
func (a *API) findNode(r *request) (found, error) {
	condition := r.Header.Get("If-None-Match")
	if poll := a.lookUp(r); condition != "" && poll != nil && named(r.uid, poll.UID) {
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

// lookUp returns the index's data of the node; nil for none.
func (a *API) lookUp(r *request) *store.Poll {
	if r.known == nil {
		if poll, ok := a.Index.Poll(r.nodeKey()); ok {
			r.known = &poll
		}
	}
	return r.known
}

// asksOffer reports whether a GET asks for the offered revision, not for the desired one.
func (r *request) asksOffer() bool { return r.own || r.node || r.uid != "" }

// same returns the ETag of a 304 answer; "" if the caller must get the node. An agent gets no
// answer for a desired revision that it is not offered.
func (r *request) same(condition, etag string) string {
	if listed(condition, etag) {
		return etag
	}
	if r.asksOffer() && flexnode.SameOffer(condition, etag) {
		return condition
	}
	return ""
}

// named reports whether the uid that a caller names, if any, is that of a node.
func named(uid, of string) bool { return uid == "" || uid == of }

// show returns the node of a request as callers see it, with the configuration of a revision.
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
	config, err := a.Store.Content(r.Context(), *revision)
	return flexnode.Shown(n, revision, config, status), err
}

// status returns the status of a node. joining is nil if it was not read.
func (a *API) status(
	key string, n flexnode.Node, joining *flexnode.JoinCredential, reachable bool,
) (*api.Status, error) {
	row, err := a.Index.Status(key)
	return flexnode.StatusOf(flexnode.Evidence{
		Node: n, Status: row.Value, Seen: a.Seen.Last(key), Reachable: reachable,
		Credential: joining, Provider: a.Renderer, Now: a.Now(),
	}), err
}

func (a *API) reachable(clusterKey string) bool {
	row, err := a.Index.Cluster(clusterKey)
	return err == nil && row.Value.Properties.Reachable
}

// isNode reports whether a request is from a node (Caller.isNode). A node's Azure identity may
// register a key although the node has one.
func (r *request) isNode(identity string, former flexnode.Former, machineKey string) bool {
	if r.route.registers && !r.caller.isMachine() {
		return r.caller.hasIdentity(identity, former)
	}
	return r.caller.isNode(identity, former, machineKey)
}

// ownNode reports whether a request is from a node about itself, by the index; the handler compares
// the stored row again (mayHave).
func (a *API) ownNode(r *request) bool {
	poll := a.lookUp(r)
	r.node = poll != nil && named(r.uid, poll.UID) &&
		r.isNode(poll.Identity, poll.Former, poll.MachineKey)
	r.own = r.node
	return r.own
}

// ownStoredNode is ownNode by the store, for callers that would be refused otherwise: the index may
// be behind, and has no deleted nodes.
func (a *API) ownStoredNode(r *request) (bool, error) {
	row, err := a.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return false, err
	}
	if n := row.Value; row.Exists() && named(r.uid, n.UID) {
		r.node = r.isNode(n.Identity, n.Former, n.MachineKey)
		r.own = r.node
		return r.own, nil
	}
	stone, ok, err := a.tombstone(r)
	r.own = ok && r.caller.isNode(stone.Identity, stone.Former, stone.MachineKey)
	return r.own, err
}

// mayHave returns an error if a caller that was authorized as a node is not the node that was read.
func (a *API) mayHave(r *request, n flexnode.Node) error {
	if !r.own || r.caller.isNode(n.Identity, n.Former, n.MachineKey) {
		return nil
	}
	return a.askRole(r)
}

func pollOf(n flexnode.Node) store.Poll {
	return store.Poll{
		UID: n.UID, Identity: n.Identity, Former: n.Former, MachineKey: n.MachineKey,
		Joining: n.Credential != "",
	}
}

// heard records that a node has polled or reported. It also informs those that wait for that: the
// credential of a node that joins without a token, and its former identities.
func (a *API) heard(r *request, poll store.Poll) {
	if r.node && poll.Joining && r.caller.is(poll.Identity) {
		a.notePrincipal(r)
	}
	if r.Header[trialHeader] != nil { // the node may go back to a former identity
		return
	}
	if !r.node && !r.caller.isMachineBehindManager(poll, r.uid) &&
		!(r.caller.Trusted && r.uid == poll.UID && r.caller.hasIdentity(poll.Identity, poll.Former)) {
		return
	}
	key := r.nodeKey()
	a.Seen.Note(key, a.Now())
	if !r.caller.isPresent(poll, r.uid) || poll.Former == "" && !poll.Joining {
		return
	}
	last, _ := r.listener.heardOf.Get(key)
	if a.Now().Before(last.Add(10 * time.Second)) { // a later poll notes it
		return
	}
	r.listener.heardOf.Add(key, a.Now())
	node, err := a.Index.Node(key)
	token := poll.Former == "" && !node.Value.Desired.KubernetesAuth.UseAzureAuth // it tells
	if err != nil || !node.Exists() || token || r.askStore() != nil {
		return
	}
	if err := a.Credentials.Seen(r.Context(), key, node.Value); err != nil {
		a.Log.Warn("cannot note that a node has joined", "node", key, "error", err)
	}
}

// notePrincipal records the object id of an identity that polls before it joins.
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
// behind Resource Manager has it unless it could be a former one.
func (c Caller) isPresent(poll store.Poll, uid string) bool {
	return c.isMachine() || c.is(poll.Identity) ||
		poll.Former == "" && c.isMachineBehindManager(poll, uid)
}

// isMachineBehindManager reports whether a caller names the uid of a present or former Arc machine,
// whose id Resource Manager does not send.
func (c Caller) isMachineBehindManager(poll store.Poll, uid string) bool {
	isMachine := func(identity string) bool { return strings.HasPrefix(identity, "mirid:") }
	return c.Trusted && uid != "" && uid == poll.UID &&
		(isMachine(poll.Identity) || slices.ContainsFunc(poll.Former.All(), isMachine))
}

// TombstoneInfo is the type of the additional info in a 404 for a node that its owner deleted.
const TombstoneInfo = "FlexNodeConfigTombstone"

// tombstone returns that of the node that the caller names by uid, or of the last one deleted.
func (a *API) tombstone(r *request) (flexnode.Tombstone, bool, error) {
	row, err := a.Store.Tombstones.Get(r.Context(), r.nodeKey())
	if err != nil {
		return flexnode.Tombstone{}, false, err
	}
	return row.Value.Of(r.uid)
}

// notFound returns the error for a node that does not exist. The tombstone in it is an agent's only
// order to unbootstrap.
func (a *API) notFound(r *request) error {
	stone, ok, err := a.tombstone(r)
	if err != nil {
		return err
	}
	e := arm.Errorf(404, "ResourceNotFound",
		"The Resource '%s/%s/%s' under resource group '%s' was not found.",
		api.ResourceType, r.name("cluster"), r.name("node"), r.name("group"))
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
