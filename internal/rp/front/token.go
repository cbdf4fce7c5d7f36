package front

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// regenerateToken replaces the credential; the configuration and its version remain. The node's
// machine stays registered until another registers its key. With revokeNow it is shut out at once,
// and its Node is deleted: no other machine can register beside it.
func (a *API) regenerateToken(r *request) (any, error) {
	return a.issue(r, func(v *store.View, n *flexnode.Node) (does, shuts bool, err error) {
		if !r.flag("revokeNow") {
			return false, false, nil
		}
		shuts = n.MachineKey != flexnode.ShutOut || len(n.Joining) > 0 || n.Credential != "" &&
			a.Store.Credentials.Row(v, n.Credential).Value.State == store.Consumed
		n.MachineKey, n.Principal = flexnode.ShutOut, ""
		n.Joining = a.revokeJoining(v, append(slices.Clone(n.Joining), n.Credential), "")
		row := a.revokeNode(v, r.nodeKey(), *n, "", a.Now())
		if row.Since.IsZero() && !a.joined(v, r.nodeKey(), *n) {
			return false, shuts, nil
		}
		row.Leaving = n.UID
		return false, shuts, a.Store.Certificates.Put(v, r.nodeKey(), row)
	})
}

// revokeJoining revokes credentials that machines may be joining with, except that with an id, and
// returns the rest.
func (a *API) revokeJoining(v *store.View, keys []string, except string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		revokes := except == "" || flexnode.LastOf(key) != except
		if revokes {
			v.Fail(a.Credentials.Revoke(v, key, true))
		}
		return revokes
	})
}

// issue issues a node's credential, unless its present one does, waits for it, and answers with its
// URL, or the operation that makes it. No rate or quota refuses a request that shuts out a machine.
func (a *API) issue(
	r *request, decide func(*store.View, *flexnode.Node) (does, shuts bool, err error),
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
		does, shuts, err := decide(v, &next)
		if does || err != nil {
			return err
		}
		err = q.issue(v, &next)
		if !shuts {
			v.Fail(err)
		}
		return a.Store.Nodes.Put(v, key, next)
	})
	if err != nil {
		return nil, err
	}
	if err := a.awaitCredential(r, next); err != nil {
		return nil, err
	}
	if url, err := a.liveURL(r, next); err != nil || url != nil {
		return url, err
	}
	target := flexnode.Operation{
		Kind: regenerateKind, Target: next.ID, UID: next.UID, Credential: next.Credential,
	}
	a.accept(r, target, true)
	return nil, nil
}

// listConfigURL answers with the URL in force. It makes one for a node whose URLs no machine has
// used: a template can only call functions whose names begin with list.
func (a *API) listConfigURL(r *request) (any, error) {
	return a.issue(r, func(v *store.View, n *flexnode.Node) (usable, shuts bool, err error) {
		usable, used := a.Credentials.UseOf(v, r.nodeKey(), *n)
		if used {
			err = arm.Errorf(409, "NoConfigUrl", "No configuration URL is valid, and a machine has "+
				"already used one of this node. POST regenerateToken to create another.")
		}
		return usable, false, err
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

// refreshCredentials answers with a node's configuration and its secrets, a changed client secret
// and a bootstrap token, sealed to the key in the request. Only the node gets them, by its present
// or a former identity; an Arc machine, which Resource Manager does not name, gets no secret.
func (a *API) refreshCredentials(r *request, ask api.Refresh) (any, error) {
	k, err := a.keptNode(r)
	if err != nil {
		return nil, err
	}
	n := k.node.Value
	is := r.caller.is
	switch isNode := r.caller.isNode(n.Identity, n.Former, n.MachineKey); {
	case !isNode && (ask.RevokePrevious || !r.caller.isMachineBehindManager(pollOf(n), r.uid)):
		return nil, r.forbidden(r.scope())
	case !isNode:
		is = nil
	case r.caller.isMachine(): // it is the node as it is now
		is = func(identity string) bool { return identity == n.Identity }
	}
	if ask.RevokePrevious && !is(n.Identity) {
		return nil, arm.Errorf(403, "FormerIdentity", "A former identity of the node cannot revoke "+
			"the previous ones: it would be one of them. Ask without revokePrevious, and then, with "+
			"the present identity, with it.")
	}
	if _, _, err := sealed.Seal(ask.PublicKey, sealed.About{}, nil); err != nil {
		return nil, invalid("The value of publicKey cannot be used: %s, in base64.", err)
	}
	if taken, err := a.runsElsewhere(r, n); err != nil {
		return nil, err
	} else if taken && !ask.Joined {
		return nil, arm.Errorf(503, "CredentialNotReady", "The Node of this name is Ready, and "+
			"another node has the same identity: no bootstrap token is given until the Node is not "+
			"Ready, or its owner asks for a configuration URL (regenerateToken).")
	}
	wait, cancel := context.WithTimeout(r.Context(), a.Patience)
	defer cancel()
	var fresh credential.Refreshed
	r.place.Rest(func() { fresh, err = a.Credentials.Refresh(wait, k.node, ask, is) })
	switch {
	case errors.Is(err, credential.ErrSecret):
		return nil, r.forbidden(r.scope())
	case errors.Is(err, credential.ErrNoNode):
		return nil, a.notFound(r)
	case errors.Is(err, credential.ErrNotReady):
		return nil, arm.Errorf(503, "CredentialNotReady",
			"The configuration or its bootstrap token waits for the cluster. Ask again.")
	case err != nil:
		return nil, err
	}
	answer := api.Refreshed{ConfigVersion: fresh.ConfigVersion, Expires: fresh.Expires}
	answer.EncapsulatedKey, answer.Ciphertext, err = sealed.Seal(ask.PublicKey,
		sealed.About{ID: n.ID, UID: n.UID}, fresh.Bundle)
	r.after = fresh.ConfigVersion
	return answer, err
}

// runsElsewhere reports whether a node whose identity is also another node's joins with a bootstrap
// token, and has a Node that is Ready: its caller may be that other node.
func (a *API) runsElsewhere(r *request, n flexnode.Node) (bool, error) {
	status, err := a.Index.Status(r.nodeKey())
	ready := status.Value.Ready
	return err == nil && !r.caller.isMachine() && !n.Desired.KubernetesAuth.UseAzureAuth &&
		ready != nil && ready.Status == "True" && a.reachable(r.clusterKey()) &&
		len(a.Index.Identified(r.clusterKey(), n.Identity)) > 1, err
}
