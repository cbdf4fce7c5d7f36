package front

import (
	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// leave has the Node of a leaving machine deleted. If its flexNodeConfig is deleted, the machine
// may not write any more.
func (a *API) leave(r *request, ask api.Leave) (any, error) {
	switch {
	case ask.PublicKey != nil:
		return a.arcSecret(r, ask.PublicKey)
	case ask.Arc != nil:
		return a.leftArc(r, *ask.Arc)
	}
	var uid string
	err := a.change(r, "node left", func(v *store.View) (err error) {
		uid, err = a.leaves(v, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	left := func(row store.Row[flexnode.Certificates]) bool { return row.Value.Leaving != uid }
	gone, err := awaitRow(a, r, a.Store.Certificates, r.nodeKey(), left)
	if err == nil && !gone {
		err = arm.Errorf(503, "NodeNotDeleted", "The Node is deleted when the cluster answers.")
	}
	return nil, err
}

// leaves writes that a machine leaves, and returns its node's uid. It does not delete the Node of
// another machine.
func (a *API) leaves(v *store.View, r *request) (uid string, err error) {
	key := r.nodeKey()
	row, node := a.Store.Certificates.Row(v, key).Value, a.Store.Nodes.Row(v, key)
	if node.Exists() && named(r.uid, node.Value.UID) {
		if err := a.mayHave(r, node.Value); err != nil {
			return "", err
		}
		row.Leaving = node.Value.UID
		if !node.Value.ShowsToken(a.Defaults) {
			row = row.Unseen(row.Leaving, a.Now())
		}
		return row.Leaving, a.Store.Certificates.Put(v, key, row.Leave(row.Leaving))
	}
	stone, err := a.buried(v, r)
	if err != nil {
		return "", err
	}
	if !node.Exists() {
		row.Leaving = stone.UID
	}
	current := func(o flexnode.Certificate) bool { return node.Exists() && o.UID == node.Value.UID }
	row = row.Revoke(stone.UID, current, a.Now(), row.Epoch).Leave(stone.UID)
	return stone.UID, a.Store.Certificates.Put(v, key, row)
}

// buried returns the tombstone of the deleted node that the caller's machine was.
func (a *API) buried(v *store.View, r *request) (flexnode.Tombstone, error) {
	cluster := a.Store.Clusters.Row(v, r.clusterKey())
	if !cluster.Exists() || cluster.Value.Deleting() { // its rows go with it
		return flexnode.Tombstone{}, a.notFound(r)
	}
	stone, ok, err := a.Store.Tombstones.Row(v, r.nodeKey()).Value.Of(r.uid)
	is := store.Poll{UID: stone.UID, Identity: stone.Identity, Former: stone.Former}
	if err == nil && (!ok || !r.caller.isNode(stone.Identity, stone.Former, stone.MachineKey) &&
		!r.caller.isMachineBehindManager(is, r.uid)) {
		err = a.notFound(r)
	}
	if err == nil && r.caller.isMachine() && stone.Boot != "" && stone.Boot != r.caller.Boot.ID {
		err = secondMachine()
	}
	return stone, err
}

// arcSecret gives the machine of a deleted node the secret that enrolled it with Azure Arc,
// encrypted to its key.
func (a *API) arcSecret(r *request, public []byte) (any, error) {
	var row store.Row[store.ArcLeft]
	var stone flexnode.Tombstone
	err := a.change(r, "", func(v *store.View) (err error) {
		stone, err = a.buried(v, r)
		row = a.Store.ArcLeft.Row(v, credential.ArcLeftKey(r.nodeKey(), stone.UID))
		return err
	})
	if err != nil {
		return nil, err
	}
	if !r.caller.isMachine() {
		return nil, r.forbidden(r.scope())
	}
	secret, err := a.Credentials.ArcSecret(row)
	if err == nil && secret == "" {
		err = arm.Errorf(404, "NoOnboardingSecret",
			"No secret that was used to enrol the machine with Azure Arc is stored.")
	}
	if err != nil {
		return nil, err
	}
	var answer api.LeaveSecret
	answer.EncapsulatedKey, answer.Ciphertext, err = sealed.Seal(public,
		sealed.About{ID: r.scope(), UID: stone.UID}, []byte(secret))
	if err != nil {
		return nil, invalid("The value of publicKey cannot be used: %s, in base64.", err)
	}
	a.Audit.Info("onboarding secret given to a machine that leaves", "node", r.nodeKey(),
		"machine", row.Value.Machine)
	return answer, nil
}

// leftArc records whether the machine of a deleted node has left Azure Arc. If it has, its secret
// is erased; if not, the Arc machine is listed until the tombstone goes. A machine whose node still
// exists was unbootstrapped by hand.
func (a *API) leftArc(r *request, said api.ArcLeft) (any, error) {
	problem := flexnode.Cut(said.Problem, 500)
	var left store.ArcLeft
	var gone bool
	err := a.change(r, "left Azure Arc", func(v *store.View) error {
		node, key := a.Store.Nodes.Row(v, r.nodeKey()), r.caller.MachineKey
		if node.Exists() && named(r.uid, node.Value.UID) && r.caller.isMachine() &&
			key == node.Value.MachineKey {
			if node.Value.LeftArc = key; problem != "" {
				node.Value.LeftArc = ""
			}
			return a.Store.Nodes.Put(v, r.nodeKey(), node.Value)
		}
		stone, err := a.buried(v, r)
		if err != nil {
			return err
		}
		key = credential.ArcLeftKey(r.nodeKey(), stone.UID)
		left = a.Store.ArcLeft.Row(v, key).Value
		if gone = left.ShutOut; gone { // it stays listed
			return nil
		}
		if left.Machine == "" && flexnode.IsMachine(said.MachineID) {
			left = store.ArcLeft{Machine: said.MachineID, Deleted: stone.Deleted} // of a failed change
		}
		gone = problem == "" || left.Machine == ""
		if gone {
			a.Store.ArcLeft.Delete(v, key)
			return nil
		}
		left.Problem = problem
		return a.Store.ArcLeft.Put(v, key, left)
	})
	if err == nil && !gone {
		a.Audit.Warn("an Arc machine is left", "node", r.nodeKey(), "machine", left.Machine,
			"problem", problem)
	}
	return nil, err
}
