package front

import (
	"cmp"
	"net/http"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// regenerateToken makes a new credential in place of the present one. The desired configuration
// is kept, and its version with it. If the cluster keeps it waiting, the answer is an operation
// whose result is the URL. The machine that is the node remains it until another one registers its
// key. With revokeNow it is shut out at once, and its Node is deleted, beside which another machine
// cannot register its own.
func (a *API) regenerateToken(w http.ResponseWriter, r *request) error {
	node, err := a.issue(r, func(v *store.View, n *flexnode.Node) (bool, error) {
		if !r.flag("revokeNow") {
			return false, nil
		}
		n.MachineKey, n.Principal = "", ""
		row, err := a.revokeNode(v, r.nodeKey(), *n, "", a.Now())
		if err != nil || row.Since.IsZero() && !a.joined(v, r.nodeKey(), *n) {
			return false, err
		}
		row.Leaving = n.UID
		return false, a.Store.Certificates.Put(v, r.nodeKey(), row)
	})
	if err != nil {
		return err
	}
	return a.awaitURL(w, r, node)
}

// awaitURL waits for the credential of a node, and answers with its URL, or with an operation whose
// result it will be.
func (a *API) awaitURL(w http.ResponseWriter, r *request, node flexnode.Node) error {
	if err := a.awaitCredential(r, node); err != nil {
		return err
	}
	url, err := a.Credentials.URL(r.Context(), node.Credential)
	if err != nil {
		return err
	}
	if url != nil {
		return answerURL(w, node, url)
	}
	target := flexnode.Operation{Target: node.ID, UID: node.UID, Credential: node.Credential}
	if err := a.accept(w, r, regenerateKind, target, true); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// issue writes that a node is to have a new credential, unless the one that it has will do.
func (a *API) issue(
	r *request, will func(*store.View, *flexnode.Node) (bool, error),
) (flexnode.Node, error) {
	var next flexnode.Node
	key := r.nodeKey()
	ahead := []string{a.Store.Clusters.Key(r.clusterKey()), a.Store.Nodes.Key(key),
		a.Store.Subscriptions.Key(r.subscriptionKey())}
	q := quota{api: a, r: r, key: key}
	plan := func(v *store.View) error {
		_, node, err := a.openNode(v, r)
		if err != nil {
			return err
		}
		next = node.Value
		r.before, r.after = decimal(next.Revision), decimal(next.Revision)
		if does, err := will(v, &next); does || err != nil {
			return err
		}
		if next.Credential == "" {
			if err := q.need(fair.Tokens); err != nil {
				return err
			}
		}
		if err := a.Credentials.Issue(v, key, &next); err != nil {
			return err
		}
		return a.Store.Nodes.Put(v, key, next)
	}
	revision, err := a.Store.Update(r.Context(), "credential planned", ahead, plan)
	q.done(revision, err)
	return next, err
}

// listConfigURL tells the URL that is in force. A node that no machine has used one of gets one: a
// template can call functions whose names begin with list, and no others.
func (a *API) listConfigURL(w http.ResponseWriter, r *request) error {
	node, err := a.issue(r, func(v *store.View, n *flexnode.Node) (bool, error) {
		use := a.Credentials.UseOf(v, r.nodeKey(), *n)
		if use == credential.Used {
			return false, arm.Errorf(409, "NoConfigUrl", "There is no configuration URL in force, and a "+
				"machine has used one of this node already. POST regenerateToken makes another.")
		}
		return use == credential.Usable, nil
	})
	if err != nil {
		return err
	}
	return a.awaitURL(w, r, node)
}

func (a *API) answerLiveURL(w http.ResponseWriter, r *request, n flexnode.Node) error {
	url, err := a.Credentials.URL(r.Context(), n.Credential)
	if err != nil {
		return err
	}
	if url == nil {
		return arm.Errorf(409, "NoConfigUrl",
			"The configuration URL that was made is not in force any more: it was used, replaced, "+
				"or has expired. POST regenerateToken makes another.")
	}
	return answerURL(w, n, url)
}

func answerURL(w http.ResponseWriter, n flexnode.Node, url *api.ConfigURL) error {
	url.ConfigVersion = cmp.Or(url.ConfigVersion, decimal(n.Assigned))
	arm.WriteJSON(w, http.StatusOK, url)
	return nil
}
