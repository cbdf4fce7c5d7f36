package inspect

import (
	"cmp"
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// History lists this machine's generations, the newest first, and a received but unapplied one.
func History(ctx context.Context, a *Env) ([]history.Past, error) {
	h, err := open(ctx, a)
	if err != nil {
		return nil, err
	}
	if h.Saved.Live == nil && h.Saved.Transition == nil {
		return nil, ErrNoNode
	}
	m := history.Memory{
		Generations: h.Saved.Generations, Rejected: h.Saved.Rejected, Applied: h.Saved.AppliedID(),
		Transition: h.Saved.Transition, Received: a.Records().BundleResource(),
		Runs: Source(a).Applied,
	}
	if m.Proved, err = h.Saved.ReadHistory(); err != nil {
		return nil, err
	}
	if m.Previous, err = h.Saved.Generations.Target(ctx, generation.Previous); err != nil {
		return nil, err
	}
	m.Digest, _ = a.Records().BundleDigest() // an unreadable one was not rejected
	if w := ReadWaiting(a); w != nil {
		m.Waits = w.Reason + ": " + w.Message
	}
	return m.Past(), nil
}

// Compare returns the differences between two kept generations, on this machine now.
func Compare(ctx context.Context, a *Env, from, to string) (history.Comparison, error) {
	h, err := open(ctx, a)
	if err != nil {
		return history.Comparison{}, err
	}
	if h.Saved.Live == nil {
		return history.Comparison{}, ErrNoNode
	}
	before, err := history.Find(ctx, h.Saved.Generations, cmp.Or(from, string(generation.Previous)))
	if err != nil {
		return history.Comparison{}, err
	}
	after, err := history.Find(ctx, h.Saved.Generations, cmp.Or(to, string(generation.Applied)))
	if err != nil {
		return history.Comparison{}, err
	}
	return history.Compare(before, after, func(g *generation.Generation) node.Bindings {
		b := h.Saved.Bound(h.Saved.Bindings.Bindings, g)
		b.AdminKubeconfig = Admin(h) // only the applied one has it, and the next one gets it
		return b
	})
}

// Admin returns the administrator's kubeconfig that the node already has, "" for none.
func Admin(h *Node) config.Secret { return h.Saved.Secrets[h.Saved.AppliedID()].AdminKubeconfig }
