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

// regenerateToken replaces the credential; the configuration and its version remain. The node's
// machine stays registered until another registers its key. With revokeNow it is shut out at once,
// and its Node is deleted: no other machine can register beside it.
func (a *API) regenerateToken(r *request) (any, error) {
	return a.issue(r, func(v *store.View, n *flexnode.Node) (bool, error) {
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
}

// awaitURL waits for a node's credential, and answers with its URL, or the operation that makes it.
func (a *API) awaitURL(r *request, node flexnode.Node) (any, error) {
	if err := a.awaitCredential(r, node); err != nil {
		return nil, err
	}
	if url, err := a.liveURL(r, node); err != nil || url != nil {
		return url, err
	}
	target := flexnode.Operation{
		Kind: regenerateKind, Target: node.ID, UID: node.UID, Credential: node.Credential,
	}
	if err := a.accept(r, target, true); err != nil {
		return nil, err
	}
	r.answer.WriteHeader(http.StatusAccepted)
	return nil, nil
}

// issue issues a node's credential, unless its present one will do, and answers with the URL.
func (a *API) issue(
	r *request, will func(*store.View, *flexnode.Node) (bool, error),
) (any, error) {
	var next flexnode.Node
	key := r.nodeKey()
	q := quota{api: a, r: r, key: key}
	err := q.change("credential planned", nil, func(v *store.View) error {
		_, node, err := a.openNode(v, r)
		if err != nil {
			return err
		}
		next = node.Value
		r.before, r.after = flexnode.ShownVersion(next.Revision), flexnode.ShownVersion(next.Revision)
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
	})
	if err != nil {
		return nil, err
	}
	return a.awaitURL(r, next)
}

// listConfigURL answers with the URL in force. It makes one for a node whose URLs no machine has
// used: a template can only call functions whose names begin with list.
func (a *API) listConfigURL(r *request) (any, error) {
	return a.issue(r, func(v *store.View, n *flexnode.Node) (bool, error) {
		use := a.Credentials.UseOf(v, r.nodeKey(), *n)
		if use == credential.Used {
			return false, arm.Errorf(409, "NoConfigUrl", "No configuration URL is valid, and a machine "+
				"has already used one of this node. POST regenerateToken to create another.")
		}
		return use == credential.Usable, nil
	})
}

// liveURL returns the URL of a node that is in force; nil for none.
func (a *API) liveURL(r *request, n flexnode.Node) (*api.ConfigURL, error) {
	url, err := a.Credentials.URL(r.Context(), n.Credential)
	if url != nil {
		url.ConfigVersion = cmp.Or(url.ConfigVersion, flexnode.ShownVersion(n.Assigned))
	}
	return url, err
}
