package change

import (
	"cmp"
	"context"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
)

// MachineKeys returns the key of the machine, which signs requests to a provider.
func MachineKeys(a *Agent) follow.Keys {
	return saved.Keys{
		Writer: saved.NewWriter(a.Machine), RunDir: a.Path(saved.RunDir), Writing: &a.Bundle,
		Kubelet: func(ctx context.Context) ([]byte, error) { return kubeletPair(ctx, a) },
	}
}

// kubeletPair returns the client certificate of the node's kubelet with its key, in PEM; nil on a
// machine that is no node.
func kubeletPair(ctx context.Context, a *Agent) ([]byte, error) {
	h, err := OpenReadOnly(ctx, a)
	if err != nil || h.Saved.Live == nil {
		return nil, err
	}
	return a.ReadFile(access.ClientCertificate(h.Saved.Live.Config))
}

// ResourceOf is where a configuration is from; zero for none. What a provider has delivered is from
// it also when it cannot be used.
func ResourceOf(a *Agent, in Input) config.Resource {
	switch {
	case in.Resource != nil:
		return *in.Resource
	case in.Origin == "url":
		return cmp.Or(a.Records().BundleResource(), inspect.AppliedResource(&a.Env))
	}
	return config.Resource{}
}

// NoteApplied writes down which version the node runs on.
func NoteApplied(ctx context.Context, a *Agent, r *config.Resource) error {
	if r == nil {
		return nil
	}
	return saved.NewWriter(a.Machine).SetApplied(ctx, *r)
}

// FormerManner returns the manner in which the provider has answered last, as long as it has not
// answered in that of the applied configuration; else the zero value.
func FormerManner(h *Home) follow.Manner {
	id := h.Saved.Bindings.Answered
	if id == "" {
		return follow.Manner{}
	}
	c, err := h.Saved.Generations.Config(id)
	if err != nil {
		h.Log.Warn("the former way to the provider cannot be read", "error", err)
		return follow.Manner{}
	}
	return follow.MannerOf(c.WithCredentials(h.Saved.Secrets[id]))
}

// answeredBefore returns the generation in whose manner the provider has answered last; "" when the
// one that is being committed asks it in the same manner, or not at all.
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
