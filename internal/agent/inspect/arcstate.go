package inspect

import (
	"context"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// ownArc tells whether the Arc agent on the machine is ours: the ledger remembers that we have
// installed it, or are to, since nobody else has.
func ownArc(ctx context.Context, h *Node) (bool, error) {
	key := state.PackageKey(node.ArcPackage)
	if _, ours := h.ledger.Ledger().Entry(key); ours {
		return true, nil
	}
	is, err := h.Reader.Observe(ctx, key)
	if err != nil {
		return false, err
	}
	return is.(state.Package).State != state.PackageInstalled, nil
}

// WithArc are bindings that tell whose the Arc agent is. Only a node that has one is asked.
func WithArc(
	ctx context.Context, h *Node, d state.Desired, b node.Bindings,
) (node.Bindings, error) {
	asks := slices.ContainsFunc(d, func(item state.Item) bool { return item.Only == node.OwnArc })
	if !asks {
		return b, nil
	}
	own, err := ownArc(ctx, h)
	b.ForeignArc = !own
	return b, err
}

// StandingArc is what remains of the Arc agent that we have installed while the node has none: the
// machine is still registered, and only leaving takes that back.
func StandingArc(h *Node) state.Desired {
	var all state.Desired
	for _, e := range h.ledger.Ledger().Entries {
		if e.Step == state.Arc {
			all = append(all, state.Item{Step: e.Step, Resource: e.Ours.Resource})
		}
	}
	return all
}

// ArcMachineID is the ARM id of the Arc machine that this machine is already, "" when it is none or
// Azure no longer accepts it.
func ArcMachineID(ctx context.Context, h *Node, c config.Config) string {
	if c.Azure.AuthMode() != config.AuthArc {
		return ""
	}
	s, err := ArcAgent(h, c).Status(ctx)
	if err != nil || s.Agent == arc.Expired {
		return ""
	}
	return s.MachineID
}

// EnrolledBefore tells whether the machine was enrolled with Arc by an earlier run.
func EnrolledBefore(h *Node) bool {
	var record arc.Record
	known, err := h.Saved.Load(saved.ArcFile, &record)
	return err == nil && known && record.MachineID != "" && h.Saved.Live != nil
}

// ArcAgent returns the Arc agent of this machine, to be asked.
func ArcAgent(n *Node, c config.Config) arc.Arc {
	return arc.Arc{
		Config: c.Azure, Machine: n.Reader, Options: identity.ARM(c.Azure, c.ProxyFunc()),
		Proxy: c.Proxy.HTTPS, Warn: n.Warn,
	}
}
