package follow

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// ErrNotFollowed is the error for a node that follows no provider.
var ErrNotFollowed = errors.New("the node follows no resource provider")

// Leave has the provider delete the Node of this machine.
func Leave(ctx context.Context, q Question) error {
	_, err := leave(ctx, q, agentapi.Leave{}, "have the resource provider delete the Node")
	return err
}

// LeftArc tells the provider whether the Arc machine of a deleted node has left, or the problem.
func LeftArc(ctx context.Context, q Question, problem string) error {
	said := agentapi.Leave{Arc: &agentapi.ArcLeft{Problem: problem}}
	_, err := leave(ctx, q, said, "tell the resource provider what is left in Azure Arc")
	return err
}

// ArcSecret returns the secret that has enrolled this machine, whose node was deleted, with Arc.
func ArcSecret(ctx context.Context, q Question) (config.Secret, error) {
	key, err := sealed.NewKey()
	if err != nil {
		return "", err
	}
	resp, err := leave(ctx, q, agentapi.Leave{PublicKey: key.Public()},
		"get the secret that has enrolled the machine")
	if err != nil {
		return "", err
	}
	var answer agentapi.LeaveSecret
	if err := resp.decode(&answer, "an answer of leave"); err != nil {
		return "", err
	}
	secret, err := key.Open(sealed.About{ID: q.Resource.ID, UID: q.Resource.UID},
		answer.EncapsulatedKey, answer.Ciphertext)
	return config.Secret(secret), err
}

// leave asks for the action leave in one way after the other, until one is answered.
func leave(
	ctx context.Context, q Question, ask agentapi.Leave, doing string,
) (resp *reply, err error) {
	err = ErrNotFollowed
	q.each(func(r *Resource) (answers bool) {
		if resp, err = r.post(ctx, "leave", ask); err != nil {
			err = fmt.Errorf("cannot %s: %w", doing, err)
		}
		return err == nil
	})
	return resp, err
}
