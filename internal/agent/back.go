package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// heldBack is why the configuration that was left by hand is not tried again.
const heldBack = "held back: somebody went back to generation %.12s with `aks-flex-node rollback`"

// between is what has to change for a generation to become another, on this machine as it is bound
// now, its Node object's labels included.
func (h *home) between(from, to *generation.Generation) []Entry {
	bind := func(g *generation.Generation) state.Desired {
		b := h.saved.Bound(h.saved.Bindings.Bindings, g)
		b.AdminKubeconfig = h.admin() // it is kept of the applied one only, and goes on to the next
		return node.Bind(g.Node, b)
	}
	plan := state.Between(bind(from), bind(to))
	object := func(g *generation.Generation) state.Desired {
		all := node.NodeObject(g.Config, h.saved.Bindings.Bindings)
		return slices.DeleteFunc(all, func(item state.Item) bool {
			_, label := item.Resource.(state.Label)
			return !label
		})
	}
	return entries(append(plan, state.Between(object(from), object(to))...))
}

// Rollback makes this machine the node that it was: a kept generation, by default the previous one,
// as it was rendered then. It is a change like any other: it is proved by the health gate, and one
// that does not work is undone. The configuration that it leaves is held back until it changes or
// Bootstrap is asked for it. A rollback that was interrupted is finished.
func (a *Agent) Rollback(ctx context.Context, name string) (Result, error) {
	began := now()
	h, err := a.openLocked(ctx, "rollback")
	if err != nil {
		return Result{}, err
	}
	defer h.close()
	to, err := h.backTo(ctx, name)
	if err != nil {
		return Result{}, err
	}
	result := Result{NodeName: to.Config.Agent.NodeName}
	view := &steps{agent: a}
	if h.saved.Transition != nil {
		err = h.settle(ctx, nil, false, view)
	} else {
		err = h.goBack(ctx, to, view)
	}
	result.finish(began, view.total, err)
	return result, err
}

// Back tells what Rollback would do.
func (a *Agent) Back(ctx context.Context, name string) (Comparison, error) {
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return Comparison{}, err
	}
	to, err := h.backTo(ctx, name)
	if err != nil {
		return Comparison{}, err
	}
	return a.Compare(ctx, h.saved.Applied.ID, to.ID)
}

// backTo is the generation that a rollback leads to, if there can be one.
func (h *home) backTo(ctx context.Context, name string) (*generation.Generation, error) {
	switch {
	case h.saved.Applied == nil && h.saved.Transition == nil:
		return nil, errNoNode
	case h.saved.Transition != nil:
		return h.goingBackTo(ctx, name)
	}
	to, err := h.find(ctx, cmp.Or(name, string(generation.Previous)))
	switch {
	case err != nil:
		return nil, err
	case to.ID == h.saved.Applied.ID:
		return nil, fmt.Errorf("cannot roll back to generation %.12s: the machine runs on it", to.ID)
	}
	list, err := h.saved.ReadHistory()
	if err != nil {
		return nil, err
	}
	previous, err := h.saved.Generations.Target(ctx, generation.Previous)
	if err != nil {
		return nil, err
	}
	if _, was := list.Last(to.ID); !was && to.ID != previous {
		return nil, fmt.Errorf("cannot roll back to generation %.12s: it was never proved healthy",
			to.ID)
	}
	_, err = h.credentialsOf(to)
	return to, err
}

// goingBackTo is the generation that an interrupted rollback leads to. Anything else that is under
// way comes first, as does a rollback to another generation than the one that is named.
func (h *home) goingBackTo(ctx context.Context, name string) (*generation.Generation, error) {
	left := *h.saved.Transition
	if !left.GoesBack() {
		return nil, &UnderWayError{left}
	}
	to, err := h.find(ctx, cmp.Or(name, left.To))
	if err == nil && to.ID != left.To {
		return nil, &UnderWayError{left}
	}
	return to, err
}

// credentialsOf are the credentials with which a generation of before works again: those of now, if
// they are of the same identity.
func (h *home) credentialsOf(to *generation.Generation) (config.Credentials, error) {
	cannot := fmt.Sprintf("cannot roll back to generation %.12s: ", to.ID)
	if !h.credentialed(to.Config) {
		return config.Credentials{}, errors.New(cannot + "kubelet has no certificate for it; write " +
			"that configuration, with a new bootstrap token, and run `aks-flex-node bootstrap`")
	}
	sp := to.Config.Azure.ServicePrincipal
	if sp == nil || sp.ClientSecretFile != "" || sp.CertificateFile != "" ||
		to.Config.Azure.AuthMode() == config.AuthArc {
		return config.Credentials{}, nil
	}
	if kept := h.saved.Secrets[to.ID].ClientSecret; kept != "" {
		return config.Credentials{ClientSecret: kept}, nil
	}
	now := h.saved.ConfigOf(h.saved.Applied)
	is, given := now.Azure.ServicePrincipal, now.Credentials()
	if is == nil || is.ClientID != sp.ClientID || is.TenantID != sp.TenantID ||
		given.ClientSecret == "" {
		return config.Credentials{}, errors.New(cannot + "the secret of the service principal " +
			sp.ClientID + " is not kept; write that configuration, with the secret, and run " +
			"`aks-flex-node bootstrap`")
	}
	return config.Credentials{ClientSecret: given.ClientSecret}, nil
}

// goBack makes the transition that leads back, and carries it out.
func (h *home) goBack(ctx context.Context, to *generation.Generation, view *steps) error {
	credentials, err := h.credentialsOf(to)
	if err != nil {
		return err
	}
	h.saved.Secrets[to.ID] = credentials
	if err := h.withAdmin(ctx, h.saved.ConfigOf(to), to); err != nil {
		return err
	}
	if err := h.saved.Forgive(ctx, to.Received); err != nil {
		return err
	}
	b := h.saved.Bindings
	if configs, err := h.Machine.CNIConfigs(to.Config.Paths.CNI.ConfDir); err == nil {
		b.ForeignCNI = foreignNetworks(configs)
	}
	b.Program = h.Program
	next := h.following(transition.Decision{Kind: transition.Change, To: to.ID})
	next.ByHand, next.Drains = true, drains(h.saved.Applied.Config, to.Config)
	if err := h.announce(ctx, next, to, b, view); err != nil {
		return err
	}
	return h.run(ctx, next, "", view)
}

// holdBack has the document of the generation that a person has left not be tried again, and the
// one that he went back to be accepted.
func (w *work) holdBack(ctx context.Context, t transition.Transition) error {
	from, err := w.saved.Generations.Load(t.From)
	if err != nil {
		return err
	}
	if _, held := w.saved.Rejected.Of(from.Received); held || from.Received == w.to.Received {
		return nil
	}
	r := w.newRejection(&from, fmt.Sprintf(heldBack, t.To))
	r.ByHand = true
	return w.saved.KeepRejection(ctx, r)
}
