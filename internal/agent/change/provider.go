package change

import (
	"cmp"
	"context"
	"net/http"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// MachineKeys returns the keys of the machine, which sign requests to a provider.
func MachineKeys(a *Agent) follow.Keys {
	return saved.Keys{
		Writer: saved.NewWriter(a.Machine), RunDir: a.Path(saved.RunDir), Writing: &a.Bundle,
		Kubelet: func(ctx context.Context) ([]byte, error) {
			h, err := OpenReadOnly(ctx, a)
			if err != nil || h.Saved.Live == nil {
				return nil, err
			}
			return a.ReadFile(access.ClientCertificate(h.Saved.Live.Config))
		},
	}
}

// followed returns the resource of the received configuration, else of the applied one.
func followed(a *inspect.Env) config.Resource {
	return cmp.Or(a.Records().BundleResource(), inspect.AppliedResource(a))
}

// ResourceOf returns the resource of a configuration, even of an unusable one; zero for none.
func ResourceOf(a *Agent, in Input) config.Resource {
	switch {
	case in.Resource != nil:
		return *in.Resource
	case in.Origin == "url":
		return followed(&a.Env)
	}
	return config.Resource{}
}

// NoteApplied records the version that the node runs.
func NoteApplied(ctx context.Context, a *Agent, r *config.Resource) error {
	if r == nil {
		return nil
	}
	return saved.NewWriter(a.Machine).SetApplied(ctx, *r, inspect.Stamp())
}

// FormerManner returns the manner in which the provider last answered, until it has answered in
// that of the applied configuration; then the zero value.
func FormerManner(h *Home) follow.Manner {
	id := h.Saved.Bindings.Answered
	if id == "" {
		return follow.Manner{}
	}
	c, err := h.Saved.Generations.Config(id)
	if err != nil {
		h.Log.Warn("cannot read the previous connection to the provider", "error", err)
		return follow.Manner{}
	}
	return follow.MannerOf(c.WithCredentials(h.Saved.Secrets[id]))
}

// answeredBefore returns the generation in whose manner the provider last answered; "" if the
// committed one polls in the same manner, or not at all.
func answeredBefore(w *work) string {
	id, former := w.Saved.Bindings.Answered, FormerManner(w.Home)
	if !former.Asks && w.Saved.Applied != nil {
		id, former = w.Saved.Applied.ID, follow.MannerOf(w.Saved.ConfigOf(w.Saved.Applied))
	}
	next := follow.MannerOf(w.config)
	if !next.Asks || !former.Asks || next.SameWay(former) {
		return ""
	}
	return id
}

// question returns a Question to the provider of a resource, asked as this node, in some ways.
func question(h *Home, is config.Resource, ways ...follow.Manner) follow.Question {
	return follow.Question{
		Resource: follow.Resource{ID: is.ID, UID: is.UID}, Ways: ways,
		Client:   func(c config.Config) *http.Client { return ProviderClient(h.Agent, c) },
		Identity: h.Agent.Identity, Keys: MachineKeys(h.Agent), Alive: h.Alive,
	}
}

// ask gets the provider's consent to disrupt the node, which is stored before the cordon.
func (w *work) ask(ctx context.Context, t *transition.Transition) error {
	if t.Asks == "" {
		return nil
	}
	now, former := follow.MannerOf(w.Saved.ConfigOf(w.Saved.Applied)), FormerManner(w.Home)
	err := follow.Begin(ctx, question(w.Home, followed(w.Node.Env), now, former), t.Asks)
	if err == nil {
		t.Asks = ""
	}
	return err
}

// tryProvider checks that the provider does not refuse a joining machine.
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
	h.Warn("cannot follow the resource provider yet: %v; the machine joins anyway", err)
	return nil
}
