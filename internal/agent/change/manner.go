package change

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// proveProvider makes sure that the provider answers this node in the manner of a configuration: a
// fresh token of the identity that polls, past every cache, and one poll. A refusal is a
// transition.Refused; any other error leaves open whether the manner works.
func proveProvider(ctx context.Context, h *Home, c config.Config, is config.Resource) error {
	m := follow.MannerOf(c)
	if !m.Asks || is.UID == "" {
		return nil
	}
	client := ProviderClient(h.Agent, c)
	defer client.CloseIdleConnections()
	resource := follow.Resource{Client: client, Endpoint: m.Endpoint, ID: is.ID, UID: is.UID}
	refused, err := follow.Prove(ctx, resource, c, NodeIdentity(h.Agent), h.Alive)
	if refused {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	return err
}

// tryProvider makes sure, before a machine joins, that the provider does not refuse it. A provider
// that does not answer is only warned of.
func tryProvider(ctx context.Context, h *Home, t *Target) error {
	c := t.Input.Config
	if h.Saved.Joined() || !showsWho(ctx, h, c) {
		return nil
	}
	err := proveProvider(ctx, h, c, ResourceOf(h.Agent, t.Input))
	if err == nil || transition.Of(err).Kind == transition.Refused {
		return err
	}
	h.Warn("the resource provider cannot be followed yet: %v; the machine joins nevertheless", err)
	return nil
}
