package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Rollback makes this machine a kept generation, by a change like any other. It holds back the
// configuration that it leaves. It finishes an interrupted rollback.
func Rollback(ctx context.Context, a *Agent, name string) (Result, error) {
	began := time.Now()
	h, err := OpenLocked(ctx, a, "rollback")
	if err != nil {
		return Result{}, err
	}
	defer h.Close()
	to, err := backTo(ctx, h, name)
	if err != nil {
		return Result{}, err
	}
	result := Result{NodeName: to.Config.Agent.NodeName}
	if h.Saved.Transition != nil {
		err = Settle(ctx, h, nil, false)
	} else {
		err = goBack(ctx, h, to)
	}
	result.finish(began, h.view.Total, err)
	return result, err
}

// Back returns what Rollback would do.
func Back(ctx context.Context, a *Agent, name string) (history.Comparison, error) {
	h, err := OpenReadOnly(ctx, a)
	if err != nil {
		return history.Comparison{}, err
	}
	to, err := backTo(ctx, h, name)
	if err != nil {
		return history.Comparison{}, err
	}
	return inspect.Compare(ctx, &a.Env, h.Saved.Applied.ID, to.ID)
}

func backTo(ctx context.Context, h *Home, name string) (*generation.Generation, error) {
	switch {
	case h.Saved.Applied == nil && h.Saved.Transition == nil:
		return nil, inspect.ErrNoNode
	case h.Saved.Transition != nil:
		return goingBackTo(ctx, h, name)
	}
	to, err := history.Find(ctx, h.Saved.Generations, cmp.Or(name, string(generation.Previous)))
	switch {
	case err != nil:
		return nil, err
	case to.ID == h.Saved.Applied.ID:
		return nil, fmt.Errorf("cannot roll back to generation %.12s: it is the current one", to.ID)
	}
	list, err := h.Saved.ReadHistory()
	if err != nil {
		return nil, err
	}
	previous, err := h.Saved.Generations.Target(ctx, generation.Previous)
	if err != nil {
		return nil, err
	}
	if _, was := list.Last(to.ID); !was && to.ID != previous {
		return nil, fmt.Errorf("cannot roll back to generation %.12s: it was never proved healthy", to.ID)
	}
	_, err = secretOf(h, to)
	return to, cmp.Or(err, stays(h, to.Config))
}

// goingBackTo returns the target of an interrupted rollback. Other transitions come first.
func goingBackTo(ctx context.Context, h *Home, name string) (*generation.Generation, error) {
	left := *h.Saved.Transition
	if !left.GoesBack() {
		return nil, comesFirst(left)
	}
	to, err := history.Find(ctx, h.Saved.Generations, cmp.Or(name, left.To))
	if err == nil && to.ID != left.To {
		return nil, comesFirst(left)
	}
	return to, err
}

// secretOf returns the client secret with which a previous generation works again; "" for none.
func secretOf(h *Home, to *generation.Generation) (config.Secret, error) {
	cannot := fmt.Sprintf("cannot roll back to generation %.12s: ", to.ID)
	if !access.Held(h.Node, to.Config) {
		return "", errors.New(cannot + "kubelet has no certificate for it; write " +
			"that configuration, with a new bootstrap token, and run `aks-flex-node bootstrap`")
	}
	sp := to.Config.Azure.ServicePrincipal
	if sp == nil || sp.ClientSecretFile != "" || sp.CertificateFile != "" ||
		to.Config.Azure.AuthMode() == config.AuthArc {
		return "", nil
	}
	if kept := h.Saved.Secrets[to.ID].ClientSecret; kept != "" {
		return kept, nil
	}
	now := h.Saved.ConfigOf(h.Saved.Applied)
	is, given := now.Azure.ServicePrincipal, now.Credentials().ClientSecret
	if is == nil || is.ClientID != sp.ClientID || is.TenantID != sp.TenantID || given == "" {
		return "", errors.New(cannot + "the secret of the service principal " +
			sp.ClientID + " is not kept; write that configuration, with the secret, and run " +
			"`aks-flex-node bootstrap`")
	}
	return given, nil
}

func goBack(ctx context.Context, h *Home, to *generation.Generation) error {
	secret, err := secretOf(h, to)
	if err != nil {
		return err
	}
	h.Saved.Secrets[to.ID] = config.Credentials{ClientSecret: secret}
	if err := withAdmin(ctx, h, h.Saved.ConfigOf(to), to); err != nil {
		return err
	}
	if err := h.Store.Forgive(ctx, to.Received); err != nil {
		return err
	}
	b := h.Saved.Bindings
	if configs, err := h.Agent.Machine.CNIConfigs(to.Config.Paths.CNI.ConfDir); err == nil {
		b.ForeignCNI = inspect.ForeignNetworks(configs)
	}
	b.Program = h.Program
	next := following(h, transition.Decision{Kind: transition.Change, To: to.ID})
	next.ByHand, next.Drains = true, h.Saved.Applied.Config.Drains(to.Config)
	if err := announce(ctx, h, next, to, b); err != nil {
		return err
	}
	return run(ctx, h, next, "")
}

// holdBack prevents retries of the document that a person has rolled back.
func holdBack(ctx context.Context, w *work, t transition.Transition) error {
	from, err := w.Saved.Generations.Load(t.From)
	if err != nil {
		return err
	}
	if _, held := w.Saved.Rejected.Of(from.Received); held || from.Received == w.to.Received {
		return nil
	}
	r := newRejection(w.Home, &from, fmt.Sprintf("held back: an operator rolled back to generation "+
		"%.12s with `aks-flex-node rollback`", t.To))
	r.ByHand = true
	return w.Store.KeepRejection(ctx, r)
}
