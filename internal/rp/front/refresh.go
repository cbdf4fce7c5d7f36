package front

import (
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// refreshCredentials answers with a node's configuration and its secrets, a changed client secret
// and a bootstrap token, sealed to the key in the request. Only the node gets them, by its present
// or a former identity; an Arc machine, which Resource Manager does not name, gets no secret.
func (a *API) refreshCredentials(r *request, ask api.Refresh) (any, error) {
	node, err := a.storedNode(r)
	if err != nil {
		return nil, err
	}
	n := node.Value
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
	if err := sealed.Check(ask.PublicKey); err != nil {
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
	r.place.Rest(func() { fresh, err = a.Credentials.Refresh(wait, node, ask, is) })
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
