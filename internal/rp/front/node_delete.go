package front

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// deleteNode deletes a node with all its rows, in one change: its credentials are revoked, and a
// tombstone is written for its machine. It does not wait for a cluster that does not answer: the
// Secret of the token is deleted later, and expires. The machine has a time to leave before the
// cluster refuses its writes. With revokeNow it is shut out: it has none, and its word that it has
// left, now or before, counts for nothing.
func (a *API) deleteNode(r *request) (any, error) {
	var gone *flexnode.Node
	var certificates flexnode.Certificates
	from := a.Now()
	if !r.flag("revokeNow") {
		from = from.Add(flexnode.LeaveTime)
	}
	err := a.change(r, "node deleted", func(v *store.View) error {
		gone = nil
		node := a.Store.Nodes.Row(v, r.nodeKey())
		if !node.Exists() {
			return a.revokeDeleted(v, r, from)
		}
		if err := r.preconditions(node.Value.ETag()); err != nil {
			return err
		}
		gone = &node.Value
		certificates = a.revokeNode(v, r.nodeKey(), *gone, gone.UID, from)
		if r.flag("revokeNow") && !certificates.Since.IsZero() {
			certificates = certificates.Return(gone.UID, flexnode.ShutOut)
			v.Fail(a.Store.Certificates.Put(v, r.nodeKey(), certificates))
		}
		v.Fail(a.leaveArc(v, r, *gone))
		return a.Credentials.RemoveNode(v, r.nodeKey(), true, a.Now())
	})
	if err != nil || gone == nil {
		return nil, err
	}
	r.before = flexnode.ShownVersion(gone.Revision)
	revoked := true // the credential is gone
	if gone.Credential != "" {
		is := func(c store.Row[store.Credential]) bool { return !c.Exists() || c.Value.TokenID == "" }
		revoked, err = awaitRow(a, r, a.Store.Credentials, gone.Credential, is)
		if err != nil {
			return nil, err
		}
	}
	cleanup := object{
		"configUrlRevoked": true, "bootstrapTokenRevoked": revoked, "monitoringDisabled": true,
	}
	if !certificates.Since.IsZero() {
		cleanup["certificateRevokedFrom"] = from.UTC().Truncate(time.Second)
		cleanup["certificateExpires"] = certificates.Until
	}
	if gone.ShowsToken(a.Defaults) {
		cleanup["roleAssignmentToRemove"] = object{"scope": gone.ClusterID(), "assignee": gone.Assignee()}
	}
	return object{ // document 004
		"status": "Deleted", "cleanup": cleanup, "note": "ARM resource deleted. Node machine " +
			"lifecycle (stop/start/destroy) must be managed separately.",
	}, nil
}

// revokeNode revokes the certificates of a node from a time on; uid is that of a deleted one
// (flexnode.Certificates.Revoke). A node without a machine, or with tokens, may have none.
func (a *API) revokeNode(
	v *store.View, key string, n flexnode.Node, uid string, from time.Time,
) flexnode.Certificates {
	row := a.Store.Certificates.Row(v, key)
	if !row.Exists() && !a.joined(v, key, n) || len(row.Value.Seen) == 0 && n.ShowsToken(a.Defaults) {
		return row.Value
	}
	next := row.Value.Revoke(uid, nil, from, a.Store.Epoch(v))
	v.Fail(a.Store.Certificates.Put(v, key, next))
	return next
}

// joined reports whether a machine may have joined as a node.
func (a *API) joined(v *store.View, key string, n flexnode.Node) bool {
	return n.Used || a.Store.Status.Row(v, key).Exists()
}

// leaveArc has the machine of a node that is being deleted leave Azure Arc, if it is enrolled. A
// machine without a known key gets no secret.
func (a *API) leaveArc(v *store.View, r *request, n flexnode.Node) error {
	hasKey := n.MachineKey != "" && n.MachineKey != flexnode.ShutOut
	left := n.LeftArc != "" && (n.MachineKey == n.LeftArc || !hasKey) // and no other one has joined
	shutOut := r.flag("revokeNow")
	if left && !shutOut || !hasKey && !a.joined(v, r.nodeKey(), n) {
		return nil
	}
	return a.Credentials.LeaveArc(v, r.nodeKey(), n, hasKey, shutOut, a.Now())
}

// revokeDeleted shuts the machine of a node out that was deleted before, if revokeNow is set.
func (a *API) revokeDeleted(v *store.View, r *request, from time.Time) error {
	if !r.flag("revokeNow") {
		return nil
	}
	stones, err := a.Store.Tombstones.Row(v, r.nodeKey()).Value.All()
	for _, stone := range stones {
		key := credential.ArcLeftKey(r.nodeKey(), stone.UID)
		if row := a.Store.ArcLeft.Row(v, key); row.Exists() {
			row.Value.Secret, row.Value.ShutOut = nil, true
			v.Fail(a.Store.ArcLeft.Put(v, key, row.Value))
		}
	}
	row := a.Store.Certificates.Row(v, r.nodeKey())
	if err != nil || len(stones) == 0 || len(row.Value.Seen) == 0 {
		return err
	}
	uid := stones[0].UID
	next := row.Value.Revoke(uid, nil, from, a.Store.Epoch(v)).Return(uid, flexnode.ShutOut)
	return a.Store.Certificates.Put(v, r.nodeKey(), next)
}
