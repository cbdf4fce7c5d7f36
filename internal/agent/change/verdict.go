package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

func rejected(r history.Rejection) error {
	return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf(
		"the configuration was rejected at %s: %s", r.At.Format(time.DateTime), r.Reason)}
}

// Verdict returns the outcome of a run that ended with an error: what was rolled back is refused,
// as the same configuration fails again.
func Verdict(err error) transition.Outcome {
	o := transition.Of(err)
	_, locked := errors.AsType[*host.LockedError](err)
	_, invalid := errors.AsType[config.Problems](err)
	switch {
	case locked:
		o.Kind = transition.Busy
	case o.Kind == transition.RolledBack, o.Kind == transition.Failed && (invalid || unfit(err)):
		o.Kind = transition.Refused
	}
	return o
}

// unfit reports whether a preflight has failed for the configuration: all else may pass by itself.
func unfit(err error) bool {
	failed, ok := errors.AsType[*health.Error](err)
	return ok && slices.ContainsFunc(failed.Conditions, func(c health.Condition) bool {
		return c.Owner == health.OwnerConfiguration
	})
}

// reject remembers that a transition's generation failed. That a node cannot follow its cluster to
// another address says nothing against the generation.
func reject(ctx context.Context, h *Home, t transition.Transition, cause error) error {
	if t.To == t.From {
		return nil
	}
	g, err := h.Saved.Generations.Load(t.To)
	if err != nil {
		return err
	}
	r := newRejection(h, &g, cause.Error())
	r.Past = t.ByHand // the document that is wanted is another one
	// What was refused has touched no unit.
	if transition.Of(cause).Kind != transition.Refused {
		r.Log = failedUnitLog(ctx, h, cause)
	}
	h.Log.Error("configuration rejected", "generation", g.ID, "reason", cause)
	return h.Store.KeepRejection(ctx, r)
}

func newRejection(h *Home, g *generation.Generation, reason string) history.Rejection {
	r := history.Rejection{
		Generation: g.ID, Received: g.Received, Reason: reason, Origin: g.Origin,
		Kubernetes: g.Config.Kubernetes.Version, Facts: g.Facts,
		At: inspect.Now().UTC().Truncate(time.Second),
	}
	if digest, err := h.Records().BundleDigest(); err == nil && digest == g.Received {
		r.Resource = h.Records().BundleResource()
	}
	return r
}

// rejectionOf returns why a target was rejected. The applied document may have failed for other
// facts of the machine: then it is not rejected.
func rejectionOf(h *Home, t *Target) (history.Rejection, bool) {
	r, rejected := h.Saved.Rejected.Of(t.Received)
	if rejected && h.Saved.Applied != nil && h.Saved.Applied.Received == t.Received {
		rejected = sameFacts(r.Facts, t.facts)
	}
	return r, rejected
}
