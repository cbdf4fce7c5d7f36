package change

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// enrol gives the machine its Azure identity, and tells the provider which cluster user that is.
func (w *work) enrol(ctx context.Context, t *transition.Transition) error {
	if err := w.enrolWithArc(ctx, t); err != nil {
		return err
	}
	if err := w.introduce(ctx); err != nil {
		w.Home.Warn("cannot report this node's identity to the resource provider: %v; if kubelet's "+
			"certificate request is not approved otherwise, run `aks-flex-node bootstrap`", err)
	}
	return nil
}

// introduce tells the provider whose certificate request, from an Azure identity, to approve.
func (w *work) introduce(ctx context.Context) error {
	c, m := w.config, follow.MannerOf(w.config)
	if c.Azure.BootstrapToken != nil || c.Azure.ShowsToken() || !m.Signs || access.Held(w.Node, c) {
		return nil
	}
	is := followed(w.Node.Env)
	if is.UID == "" {
		return nil
	}
	client, err := access.JoinClient(ctx, w.Node, c, w.target()) // the issuer may be slow
	if err != nil {
		return err
	}
	defer client.Close()
	who, err := client.WhoAmI(ctx)
	if err != nil || who == "" {
		return err
	}
	return follow.Introduce(ctx, question(w.Home, is, m), who)
}

// enrolWithArc makes the machine an Arc machine whose identity the cluster authorises, while
// downloads continue. Once it is enrolled, only a repair checks it again.
func (w *work) enrolWithArc(ctx context.Context, t *transition.Transition) error {
	c := w.config
	if c.Azure.AuthMode() != config.AuthArc {
		return nil
	}
	known, err := askAzure(w.Home).Enrolled()
	known = known && w.Saved.Applied != nil &&
		reflect.DeepEqual(w.Saved.Applied.Config.Azure.Arc, c.Azure.Arc)
	again := t.Kind == transition.Repair && concerns(t, inspect.ArcKey)
	if err != nil || known && !(again && inspect.ArcLost(ctx, w.Node)) {
		return err
	}
	w.view.Advance(state.Arc)
	if err := enrolArc(ctx, w); err != nil {
		w.view.Fail()
		return err
	}
	w.view.Done(c.Azure.Arc.MachineName + " is connected and authorised")
	return nil
}

func enrolArc(ctx context.Context, w *work) error {
	plan, _, err := w.compare(ctx)
	plan = slices.DeleteFunc(plan, func(c state.Change) bool { return c.Step != state.Arc || c.Undo })
	if err == nil && len(plan) > 0 {
		err = errors.Join(w.Engine.Apply(ctx, plan), w.Store.RemoveTree(ctx, access.PackageDir))
	}
	if err != nil {
		return err
	}
	c, at := w.config, w.target()
	enrolment, err := askAzure(w.Home).Enrol(ctx, c, at, w.view.Doing)
	if err != nil {
		return err
	}
	err = w.waiting(ctx, func(ctx context.Context) error {
		return askAzure(w.Home).WaitAuthorised(ctx, c, at, enrolment, w.view.Doing)
	})
	if err != nil {
		return err
	}
	cache, err := access.Cache(w.Node, c)
	if err == nil {
		cache.Key = "" // all its tokens are of the machine's former identity
		err = cache.Clean()
	}
	return errors.Join(err, unowned(ctx, w))
}

// renewOnboarding gives a joining generation the current Arc enrolment secret.
func renewOnboarding(ctx context.Context, h *Home, id string, c config.Config) error {
	kept, given := h.Saved.Secrets[id], c.Credentials().ClientSecret
	if c.Azure.AuthMode() != config.AuthArc || given == "" || given == kept.ClientSecret {
		return nil
	}
	kept.ClientSecret = given
	h.Saved.Secrets[id] = kept
	return h.Store.SaveSecrets(ctx)
}

// wait blocks until a resource's content is on the machine.
func (w *work) wait(ctx context.Context, to state.Resource) error {
	if link, ok := to.(state.Link); ok {
		return w.fetch.WaitFor(ctx, node.StoreDir, link.Target)
	}
	if p, ok := to.(state.Package); !ok || p.State != state.PackageInstalled {
		return nil
	}
	seen, err := w.Agent.Machine.Facts(ctx, inspect.Query(w.Node, w.config))
	if err != nil {
		return err
	}
	return askAzure(w.Home).Package(seen, w.view.Doing).Fetch(ctx, w.config)
}

// leaveArc undoes the agent's changes in Azure Arc, as the identity that the user gave: the secret
// that enrolled the machine may have expired. A machine whose resource was deleted gets the secret
// from the provider, and reports leftovers; one given back by hand reports that it has left.
func (l *leaving) leaveArc(ctx context.Context, how transition.Options) error {
	if how.KeepArc {
		return nil
	}
	record, err := access.Record(l.Records())
	if err != nil {
		return err
	}
	as := l.config
	if l.given != nil && (l.given.Azure.ArcEnabled() || l.given.Azure.ServicePrincipal != nil) {
		as = l.given
	}
	isArc := l.config != nil && (l.config.Azure.AuthMode() == config.AuthArc || record.Owes())
	deleted := how.Deleted != "" && isArc
	if deleted && record.Owes() {
		as = l.withArcSecret(ctx, as)
	}
	err = askAzure(l.Home).Leave(ctx, as)
	if err != nil && !deleted {
		return fmt.Errorf("%w\nrun unbootstrap again when that is fixed, with --config if it is "+
			"another identity that may do it now, or leave the machine in Azure Arc with --keep-arc", err)
	}
	byHand := isArc && l.heard && record.Owes() && follow.MannerOf(*l.config).Signs
	if !deleted && !byHand {
		return nil
	}
	problem := ""
	if err != nil {
		problem = err.Error()
		err = fmt.Errorf("%w%s", err, record.Deletion())
	}
	tell := func(ctx context.Context, q follow.Question) error {
		return follow.LeftArc(ctx, q, record.MachineID, problem)
	}
	if told := l.withProvider(ctx, tell); told != nil {
		l.Warn("%v", told)
	}
	return err
}

// withArcSecret adds the secret that only the provider stores. It is never written here.
func (l *leaving) withArcSecret(ctx context.Context, c *config.Config) *config.Config {
	if c.Azure.ServicePrincipal == nil || c.Azure.Onboards() {
		return c
	}
	credentials := c.Credentials()
	err := l.withProvider(ctx, func(ctx context.Context, q follow.Question) (err error) {
		credentials.ClientSecret, err = follow.ArcSecret(ctx, q)
		return err
	})
	if err != nil {
		l.Warn("%v", err)
		return c
	}
	l.Conceal(credentials.ClientSecret.Reveal())
	return new(c.WithCredentials(credentials))
}
