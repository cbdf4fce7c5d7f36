package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Repair repairs drift from the applied state: only things, or everything if nil.
func Repair(ctx context.Context, a *Agent, things []string) (inspect.Report, error) {
	h, err := OpenLocked(ctx, a, "drift --repair")
	if err != nil {
		return inspect.Report{}, err
	}
	defer h.Close()
	if h.Saved.Applied == nil {
		return inspect.Report{}, inspect.ErrNoNode
	}
	if h.Saved.Transition != nil && h.Saved.Transition.Kind != transition.Repair {
		return inspect.Report{}, comesFirst(*h.Saved.Transition)
	}
	drift, err := inspect.DriftOf(ctx, h.Node)
	if _, blind := errors.AsType[*apply.BlindError](err); blind {
		h.Warn("%v; repairing the rest", err)
	} else if err != nil {
		return inspect.Report{}, err
	}
	if len(drift) == 0 && h.Saved.Transition == nil {
		return inspect.Report{}, nil
	}
	t := following(h, transition.Decision{Kind: transition.Repair, To: h.Saved.Applied.ID})
	if left := h.Saved.Transition; left != nil {
		t.Follows, t.Touched, t.Cordoned = left.Follows, left.Touched, left.Cordoned
	}
	if !t.Touched { // else it finishes half a change
		t.Ungated, t.Things = true, things
	}
	return inspect.Report{Changes: drift}, run(ctx, h, t, "")
}

// comesFirst returns the outcome of a repair or rollback while a change is under way.
func comesFirst(t transition.Transition) error {
	finish := "bootstrap"
	switch {
	case t.Kind == transition.Leave:
		finish = "unbootstrap"
	case t.GoesBack():
		finish = "rollback"
	}
	return &transition.Outcome{Kind: transition.Busy, Err: fmt.Errorf(
		"cannot start now: a %s is under way (phase %s); finish it with `aks-flex-node %s`",
		t.Kind, t.Phase, finish)}
}

// toHeal returns the artifacts to fetch although they are in the store: those that the last sweep
// found damaged, and those that an unfinished unbootstrap may have removed partly.
func toHeal(ctx context.Context, w *work, t *transition.Transition) ([]string, error) {
	suspects := slices.Sorted(maps.Keys(w.to.Facts.Store))
	if t.Follows != transition.Leave {
		last, _ := inspect.Swept(w.Node)
		suspects = slices.DeleteFunc(slices.Clone(last.Damaged), func(name string) bool {
			_, wanted := w.to.Facts.Store[name]
			return !wanted || !concerns(t, inspect.StoreKey(name))
		})
	}
	var list []string
	for _, name := range suspects {
		heal, err := Unsound(ctx, w.Node, w.to, name)
		if err != nil {
			return nil, err
		}
		if heal {
			list = append(list, name)
		}
	}
	return list, nil
}

// oweHealed owes restarts of the units that run artifacts about to be replaced.
func (w *work) oweHealed(ctx context.Context) error {
	var units []string
	for _, name := range w.healing {
		for _, item := range inspect.LinksInto(w.to, name) {
			units = append(units, item.Owes...)
		}
	}
	return w.Engine.Owe(ctx, units...)
}

// healed clears the damage that toHeal has looked at: it was fetched again, or was intact already.
func healed(ctx context.Context, w *work) error {
	last, _ := inspect.Swept(w.Node)
	if len(last.Damaged) == 0 {
		return nil
	}
	last.Damaged = slices.DeleteFunc(last.Damaged, func(name string) bool {
		return concerns(w.Saved.Transition, inspect.StoreKey(name)) &&
			w.to.Facts.Store[name] == w.Saved.Applied.Facts.Store[name]
	})
	return VolatileWriter(w.Agent).Save(ctx, inspect.SweepFile, last)
}

// Unsound reports whether an artifact differs from the verified one. The error is that of ctx.
func Unsound(
	ctx context.Context, n *inspect.Node, g *generation.Generation, name string,
) (bool, error) {
	store, id := n.Path(node.StoreDir), path.Base(g.Facts.Store[name])
	return artifact.Unsound(ctx, store, id, n.Alive)
}

// reviveRuntime restarts a runtime that does not serve kubelet. It owes the restart first.
func reviveRuntime(ctx context.Context, w *work, t *transition.Transition) error {
	if !concerns(t, state.UnitKey(node.ContainerdUnit)) || !inspect.RuntimeLost(ctx, w.Node) {
		return nil
	}
	w.Warn("containerd runs but does not serve kubelet; restarting it")
	if err := w.Engine.Owe(ctx, node.ContainerdUnit); err != nil {
		return err
	}
	return restartOwed(ctx, w)
}

// Unstarted reports whether the boot has not started kubelet or containerd, as when its disk came
// late: systemd does not try again. A unit that its owner has stopped was started before.
func Unstarted(ctx context.Context, h *Home, key state.Key) bool {
	if key != state.UnitKey(node.KubeletUnit) && key != state.UnitKey(node.ContainerdUnit) {
		return false
	}
	is, err := h.Reader.UnitStatus(ctx, key.Name())
	return err == nil && is.File == string(state.Enabled) && !is.Begun && !is.Job
}

// rebind adopts the Node's current pod subnets, which makes the former pod network drift. A repair
// of the subnets only also repairs that network.
func rebind(ctx context.Context, h *Home, t *transition.Transition) error {
	if !concerns(t, inspect.SubnetsKey) {
		return nil
	}
	is := inspect.OtherSubnets(h.Node, inspect.SeeNode(ctx, h.Node))
	if len(is) == 0 {
		return nil
	}
	h.Warn("the Node has the pod subnets %s now, instead of %s; running pods are restarted",
		strings.Join(is, ", "), strings.Join(h.Saved.Bindings.PodCIDRs, ", "))
	h.Saved.Bindings.PodCIDRs = is
	if len(t.Things) > 0 {
		for _, item := range h.Saved.Applied.Node {
			if node.IsOwnNetwork(item.Only) {
				t.Things = append(t.Things, string(item.Resource.Key()))
			}
		}
	}
	return h.Store.SaveBindings(ctx)
}

// renewSandboxes stops the pods of our network whose address is not from one of the node's subnets:
// the bridge takes their gateway away. Kubelet starts them again, with another address. A pod that
// cannot be stopped fails no change.
func renewSandboxes(ctx context.Context, w *work, t *transition.Transition) error {
	ours := path.Join(w.config.Paths.CNI.ConfDir, node.ConflistName)
	if len(w.bindings.ForeignCNI) > 0 || !concerns(t, state.PathKey(ours)) {
		return nil
	}
	names, err := w.Reader.List(node.AddressDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.Warn("cannot list the addresses of pods: %v", err)
	}
	within, cancel := context.WithTimeout(ctx, w.config.ReadyTimeout())
	defer cancel()
	for _, name := range names {
		address, err := netip.ParseAddr(name)
		text, _ := w.ReadFile(path.Join(node.AddressDir, name)) // it may have been released
		id, device, _ := strings.Cut(string(text), "\r\n")
		result, _ := w.ReadFile(node.NetworkResult + id + "-" + device)
		stays := func(cidr string) bool {
			subnet, err := netip.ParsePrefix(cidr)
			own := fmt.Sprintf("%q", netip.PrefixFrom(address, subnet.Bits()))
			return err == nil && subnet.Contains(address) &&
				(len(result) == 0 || strings.Contains(string(result), own))
		}
		if err != nil || id == "" || slices.ContainsFunc(w.bindings.PodCIDRs, stays) {
			continue
		}
		w.Note("restarting the pod with the address %s", name)
		err = kube.StopSandbox(within, w.Path(node.ContainerdSocket), id)
		if ctx.Err() != nil {
			return ctx.Err() // the next run continues
		}
		if err != nil {
			w.Warn("cannot restart the pod with the address %s, which is cut off; delete it with "+
				"`kubectl delete pod`: %v", name, err)
		}
	}
	return nil
}
