package agent

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// reject remembers that a transition's generation failed. That a node cannot follow its cluster to
// another address says nothing against the generation, which is the applied one.
func (h *home) reject(ctx context.Context, t transition.Transition, cause error) error {
	if t.To == t.From {
		return nil
	}
	g, err := h.saved.Generations.Load(t.To)
	if err != nil {
		return err
	}
	r := h.newRejection(&g, cause.Error())
	r.Past = t.ByHand // the document that is wanted is another one
	// What was refused has touched no unit.
	if _, refused := errors.AsType[*transition.RefusedError](cause); !refused {
		r.Log = h.failedUnitLog(ctx, cause)
	}
	h.Log.Error("configuration rejected", "generation", g.ID, "reason", cause)
	return h.saved.KeepRejection(ctx, r)
}

// newRejection is the rejection of a generation now.
func (h *home) newRejection(g *generation.Generation, reason string) saved.Rejection {
	r := saved.Rejection{
		Generation: g.ID, Received: g.Received, Reason: reason, Origin: g.Origin,
		Kubernetes: g.Config.Kubernetes.Version, Facts: g.Facts, At: now().UTC().Truncate(time.Second),
	}
	if digest, err := h.records().BundleDigest(); err == nil && digest == g.Received {
		r.Resource = h.records().BundleResource()
	}
	return r
}

// rejectionOf returns why a target was rejected. The applied document may have failed for a machine
// with other facts, such as another resolver: then it is not the document that was rejected.
func (h *home) rejectionOf(t *target) (saved.Rejection, bool) {
	r, rejected := h.saved.Rejected.Of(t.received)
	if rejected && h.saved.Applied != nil && h.saved.Applied.Received == t.received {
		rejected = sameFacts(r.Facts, t.facts)
	}
	return r, rejected
}

// stamp is the time as it is recorded.
func stamp() time.Time { return now().UTC().Truncate(time.Millisecond) }

// now is the time; under testing/synctest it is the bubble's.
func now() time.Time { return time.Now() }
