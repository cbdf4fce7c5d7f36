package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/nodeobject"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// withNode calls do with the engine of the Node object. Its own ledger starts with the Node that
// kubelet has registered as configured. Without a credential it sees nothing, which is no error.
func withNode(ctx context.Context, w *work, do func(*apply.Engine) error) error {
	h := w.Home
	journal, err := apply.OpenJournal(h.Agent.Machine, saved.StateDir, saved.NodeLedgerFile)
	if err == nil && !journal.Exists() {
		err = adoptNode(ctx, h, journal)
	}
	if err != nil {
		return err
	}
	c := h.Saved.ConfigOf(h.Saved.Live)
	client, clientErr := asNode(ctx, w)
	if clientErr == nil {
		defer client.Close()
	}
	object := &nodeobject.Host{
		Node: c.Agent.NodeName, Taints: c.Node.Taints,
		Client: func(context.Context) (*kube.Client, error) { return client, clientErr },
		Capacity: func(ctx context.Context) (corev1.ResourceList, error) {
			seen, err := h.Agent.Machine.Facts(ctx, inspect.Query(h.Node, c))
			return capacity(c, seen), err
		},
	}
	return do(&apply.Engine{Host: object, Disk: h.Agent.Machine, Journal: journal})
}

// asNode returns a client with the credential of the running node or, if that no longer works, with
// the token of the generation that replaces it. It uses the proxy of that generation, which
// preflight has used, as the old password may have ended.
func asNode(ctx context.Context, w *work) (*kube.Client, error) {
	is := w.Saved.ConfigOf(w.Saved.Live)
	is.Proxy = w.config.Proxy
	client, err := access.Client(ctx, w.Node, is, w.target())
	if err != nil && w.config.Azure.ShowsToken() && !access.SameIdentity(is, w.config) {
		return access.Client(ctx, w.Node, w.config, w.target())
	}
	return client, err
}

// capacity includes what kubelet reserves: pods that already run must fit.
func capacity(c config.Config, seen host.Facts) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourcePods:             *resource.NewQuantity(int64(c.Node.MaxPods), resource.DecimalSI),
		corev1.ResourceCPU:              *resource.NewMilliQuantity(int64(seen.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(seen.MemoryBytes, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(seen.DiskBytes, resource.BinarySI),
	}
	for size, bytes := range seen.HugePages {
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		list[corev1.ResourceName(name)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return list
}

// adoptNode starts the ledger of the Node object.
func adoptNode(ctx context.Context, h *Home, journal *apply.Journal) error {
	want := node.NodeObject(cmp.Or(h.Saved.Applied, h.Saved.Live).Config, h.Saved.Bindings.Bindings)
	seen := make(state.Observed)
	for _, item := range want {
		seen[item.Resource.Key()] = item.Resource
	}
	return journal.Save(ctx, state.Adopt(want, seen))
}

// nodeObject makes the Node object match the generation. If it was deleted, kubelet must restart,
// which is owed first. A Node that this transition has cordoned stays cordoned.
func nodeObject(ctx context.Context, w *work) error {
	return withNode(ctx, w, func(engine *apply.Engine) error {
		plan, err := nodePlan(ctx, w, engine)
		if err != nil || len(plan) == 0 {
			return err
		}
		registers := slices.ContainsFunc(plan, func(c state.Change) bool {
			_, ok := c.To.(state.Registration)
			return ok
		})
		if registers {
			w.Warn("Node %s is missing in the cluster; registering it again", w.config.Agent.NodeName)
			if err := w.Engine.Owe(ctx, node.KubeletUnit); err != nil {
				return err
			}
		}
		engine.Emit = w.view.Changed
		if err := engine.Apply(ctx, plan); err != nil || !registers {
			return err
		}
		return restartOwed(ctx, w)
	})
}

func nodePlan(ctx context.Context, w *work, engine *apply.Engine) (state.Plan, error) {
	want := node.NodeObject(w.config, w.bindings.Bindings)
	if w.Saved.Transition.Cordoned {
		want = append(want, state.Item{Step: state.Start, Resource: state.Cordon{On: true}})
	}
	plan, _, err := engine.Plan(ctx, want, nil)
	return chosen(plan, w.Saved.Transition), err
}

func restartOwed(ctx context.Context, w *work) error {
	plan, _, err := w.compare(ctx)
	if err != nil {
		return err
	}
	restarts := slices.DeleteFunc(plan, func(c state.Change) bool { return !c.Restart })
	return w.Engine.Apply(ctx, restarts)
}

// drains reports whether a transition drains the node. A kubelet that has lost its certificate, or
// whose issuer refuses it tokens, has only a credential to join with, which cannot drain.
func (w *work) drains(ctx context.Context, t *transition.Transition) bool {
	if !t.Drains {
		return false
	}
	client, err := asNode(ctx, w)
	if err == nil {
		client.Close()
	}
	if !Credentialed(w.Home) || !w.config.Azure.ShowsToken() && access.Refused(err) {
		w.Warn("kubelet has no valid credential, so the node joins again and is not drained before")
		t.Drains = false
	}
	return t.Drains
}

// cordon cordons a Node to be drained. A Node that others have cordoned stays so.
func (w *work) cordon(ctx context.Context, t *transition.Transition) error {
	if !w.drains(ctx, t) {
		return nil
	}
	return withNode(ctx, w, func(engine *apply.Engine) error {
		is, err := engine.Host.Observe(ctx, state.Cordon{}.Key())
		if err != nil {
			return err
		}
		switch seen, known := is.(state.Cordon); {
		case !known:
			return fmt.Errorf("cannot cordon Node %s: %w: %s", w.Saved.Live.Config.Agent.NodeName,
				errSilent, state.Show(is))
		case seen.On:
			return nil
		}
		t.Cordoned = true // stored before the Node is touched
		if err := w.Store.SaveTransition(ctx, *t); err != nil {
			return err
		}
		plan := state.Plan{{Step: state.Start, From: state.Cordon{}, To: state.Cordon{On: true}}}
		if err = engine.Apply(ctx, plan); kube.NodeMissing(err) {
			return nil // the gate registers it, cordoned
		}
		return err
	})
}

func (w *work) drain(ctx context.Context, t *transition.Transition) error {
	if !w.drains(ctx, t) {
		return nil
	}
	client, err := asNode(ctx, w)
	if err != nil {
		return err
	}
	defer client.Close()
	w.Note("draining Node %s before it is changed", w.config.Agent.NodeName)
	ctx, cancel := context.WithTimeout(ctx, w.config.Agent.UpgradePolicy.DrainDeadline())
	defer cancel()
	err = w.waiting(ctx, func(ctx context.Context) error {
		o := drainOptions(w.Agent, w.config)
		told := time.Now()
		o.Blocked = func(e *kube.DrainError) {
			w.view.Doing(e.Error())
			if w.Agent.Waits != nil && time.Since(told) >= askPause {
				w.Agent.Waits(e)
				told = time.Now()
			}
		}
		return client.Drain(ctx, w.config.Agent.NodeName, o)
	})
	if _, blocked := errors.AsType[*kube.DrainError](err); !blocked && kube.Unavailable(err) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

// release uncordons a Node that a transition has cordoned, or that was cordoned when its machine
// left, and undoes nothing else.
func (w *work) release(ctx context.Context, t transition.Transition) error {
	if t.Kind == transition.Join {
		client, err := access.Client(ctx, w.Node, w.config, w.target())
		if err != nil {
			return err
		}
		defer client.Close()
		return client.CordonLeft(ctx, w.config.Agent.NodeName, false, true)
	}
	if !t.Cordoned {
		return nil
	}
	return withNode(ctx, w, func(engine *apply.Engine) error {
		others := engine.Journal.Ledger().As(func(e state.Entry) bool {
			return e.Ours.Key() != (state.Cordon{}).Key()
		})
		plan, unknown, err := engine.Plan(ctx, nil, others)
		if err != nil {
			return err
		}
		if len(unknown) > 0 {
			return fmt.Errorf("cannot uncordon Node %s: %s", w.Saved.Live.Config.Agent.NodeName,
				unknown[0].Why)
		}
		return engine.Apply(ctx, plan)
	})
}
