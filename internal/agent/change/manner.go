package change

import (
	"cmp"
	"context"
	"net/http"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// question returns how the provider of a resource is asked as this node, in some ways.
func question(h *Home, is config.Resource, ways ...follow.Manner) follow.Question {
	return follow.Question{
		Resource: follow.Resource{ID: is.ID, UID: is.UID}, Ways: ways,
		Client:   func(c config.Config) *http.Client { return ProviderClient(h.Agent, c) },
		Identity: h.Agent.Identity, Keys: MachineKeys(h.Agent), Alive: h.Alive,
	}
}

// ask has the provider agree before the node is disrupted, as the node that has applied what it
// runs. That it has is on disk before the Node is cordoned.
func (w *work) ask(ctx context.Context, t *transition.Transition) error {
	if t.Asks == "" {
		return nil
	}
	is := cmp.Or(w.Records().BundleResource(), inspect.AppliedResource(w.Home.Node.Env))
	now, former := follow.MannerOf(w.Saved.ConfigOf(w.Saved.Applied)), FormerManner(w.Home)
	err := follow.Begin(ctx, question(w.Home, is, now, former), t.Asks)
	if err == nil {
		t.Asks = ""
	}
	return err
}

// tryProvider makes sure, before a machine joins, that the provider does not refuse it. A provider
// that does not answer is only warned of.
func tryProvider(ctx context.Context, h *Home, t *Target) error {
	c := t.Input.Config
	m := follow.MannerOf(c)
	if h.Saved.Joined() || !m.Signs && !showsWho(ctx, h, c) {
		return nil
	}
	err := follow.Prove(ctx, question(h, ResourceOf(h.Agent, t.Input), m))
	if err == nil || transition.Of(err).Kind == transition.Refused {
		return err
	}
	h.Warn("the resource provider cannot be followed yet: %v; the machine joins nevertheless", err)
	return nil
}
