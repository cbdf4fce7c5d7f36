package change

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
		if !atFault(w, before, now, excused) {
			return fmt.Errorf("%w: the API server does not answer, or does not write; run the same "+
				"command again when it does", transition.ErrUndecided)
		}
	}
	w.Alive()
	w.view.fail()
	return explain(ctx, w, errNotReady)
}

// excuses returns whether something else than the change is at fault for a condition: an API server
// that does not answer, for a rollback the issuer of the tokens that it is asked with, or a cluster
// that writes nothing down.
func excuses(
	ctx context.Context, w *work, t *transition.Transition, last []health.Condition,
) func(health.Condition) bool {
	unwritten := func(c health.Condition) bool {
		return c.Status != health.True && (c.Reason == "NodeStatusUnknown" || slices.Contains([]string{
			health.LeaseRenewed, health.PodsSynchronized, health.LabelsApplied}, c.Type))
	}
	writes := !slices.ContainsFunc(last, unwritten) || writes(ctx, w)
	return func(c health.Condition) bool {
		return c.Type == health.APIServerReachable ||
			t.Kind == transition.Rollback && c.Reason == "CredentialUnavailable" ||
			!writes && unwritten(c)
	}
}

// writes reports whether the cluster writes to the Node, unless another reason than the cluster's
// own keeps it from that.
func writes(ctx context.Context, w *work) bool {
	ctx, cancel := context.WithTimeout(ctx, inspect.ClusterTimeout)
	defer cancel()
	client, err := inspect.KubeletClient(ctx, w.Home.Node, w.config, w.target())
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

// atFault reports whether the configuration is at fault that the gate is closed: the former one
// gets an answer that this one does not get, or something else than a missing answer is wrong.
func atFault(
	w *work, before health.Evidence, gate []health.Condition, excused func(health.Condition) bool,
) bool {
	is := w.evidence
	if lost(before.Node, is.Node) || lost(before.Credential, is.Credential) ||
		lost(before.Lease, is.Lease) || lost(before.Pods, is.Pods) {
		return true
	}
	err := before.Node.Err
	if !before.Node.Asked || kube.Unavailable(err) || errors.Is(err, kube.ErrUnauthorized) {
		return false
	}
	return slices.ContainsFunc(gate, func(c health.Condition) bool {
		return c.Status != health.True && !excused(c) && !c.NotAnswered() && !c.NotChecked()
	})
}

// lost reports whether a question that had an answer before has none now.
func lost[T any](before, is health.Answer[T]) bool {
	return before.OK() && is.Asked && is.Err != nil
}
