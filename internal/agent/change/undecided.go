package change

import (
	"context"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// undecided judges a gate that was not passed in time. Where nothing is found to be wrong but that
// the API server does not answer, or does not write, the fault is elsewhere. A node that was rolled
// back works again as soon as what it asks for answers, the issuer of its tokens included.
func undecided(
	ctx context.Context, w *work, t *transition.Transition, last []health.Condition,
) error {
	excused := excuses(ctx, w, t, last)
	wrong := slices.ContainsFunc(last, func(c health.Condition) bool {
		return c.Status == health.False && !excused(c)
	})
	if !wrong && t.Kind == transition.Rollback {
		w.Warn("the API server or the issuer of the node's tokens does not answer; the restored node " +
			"could not be proved and was healthy before")
		return nil
	}
	if !wrong && t.Kind == transition.Change {
		w.Alive()
		before := answersBefore(ctx, w, t)
		w.Alive()
		now := evaluateGate(ctx, w, t)
		if health.Healthy(now) {
			advise(ctx, w, t)
			return nil
		}
		if !health.AtFault(before, w.evidence, now, excused) {
			return fmt.Errorf("%w: the API server does not answer, or does not write; run the same "+
				"command again when it does", transition.ErrUndecided)
		}
	}
	w.Alive()
	w.view.Fail()
	return explain(ctx, w, errNotReady)
}

// excuses returns whether something else than the change is at fault for a condition: an API server
// that does not answer, for a rollback the issuer of the tokens that it is asked with, or a cluster
// that writes nothing down.
func excuses(
	ctx context.Context, w *work, t *transition.Transition, last []health.Condition,
) func(health.Condition) bool {
	writes := !slices.ContainsFunc(last, health.Unwritten) || writes(ctx, w)
	return func(c health.Condition) bool {
		return c.Type == health.APIServerReachable ||
			t.Kind == transition.Rollback && c.Reason == "CredentialUnavailable" ||
			!writes && health.Unwritten(c)
	}
}

// writes reports whether the cluster writes to the Node, unless another reason than the cluster's
// own keeps it from that.
func writes(ctx context.Context, w *work) bool {
	ctx, cancel := context.WithTimeout(ctx, inspect.ClusterTimeout)
	defer cancel()
	client, err := access.Client(ctx, w.Home.Node, w.config, w.target())
	if err != nil {
		return true
	}
	defer client.Close()
	return !kube.Unavailable(client.TouchNode(ctx, w.config.Agent.NodeName, inspect.Now()))
}

// answersBefore asks the cluster the questions of the gate with the configuration that was applied
// before.
func answersBefore(ctx context.Context, w *work, t *transition.Transition) health.Evidence {
	var e health.Evidence
	if from, err := w.Saved.Generations.Load(t.From); err == nil {
		inspect.ClusterEvidence(ctx, w.Home.Node, w.Saved.ConfigOf(&from), w.Saved.At(), &e)
	}
	return e
}
