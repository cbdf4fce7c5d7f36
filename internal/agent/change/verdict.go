package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

func rejected(r history.Rejection) error {
	return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf(
		"the configuration was rejected at %s: %s", r.At.Format(time.DateTime), r.Reason)}
}

// Verdict returns the outcome of a run. A rolled back change is refused, as it would fail again.
func Verdict(err error) transition.Outcome {
	o := transition.Of(err)
	_, locked := errors.AsType[*host.LockedError](err)
	_, invalid := errors.AsType[config.Problems](err)
	unfit, _ := errors.AsType[*health.Error](err)
	_, limited := errors.AsType[*PolicyError](err)
	ours := func(c health.Condition) bool { return c.Owner == health.OwnerConfiguration }
	switch {
	case locked:
		o.Kind = transition.Busy
	// These may pass: the machine, its policy or the cluster may change.
	case limited,
		o.Kind == transition.Failed && unfit != nil && slices.ContainsFunc(unfit.Conditions, ours):
		o.Kind, o.Every = transition.Refused, 10*time.Minute
	case o.Kind == transition.RolledBack, o.Kind == transition.Failed && invalid:
		o.Kind = transition.Refused
	}
	return o
}

// reject records that a transition's generation failed. A node that cannot follow its cluster to
// another address does not discredit its generation.
func reject(ctx context.Context, h *Home, t transition.Transition, cause error) error {
	if t.Moves() {
		return nil
	}
	g, err := h.Saved.Generations.Load(t.To)
	if err != nil {
		return err
	}
	r := newRejection(h, &g, cause.Error())
	r.Past = t.ByHand // the wanted document is another one
	// A refused change has not touched any unit.
	if transition.Of(cause).Kind != transition.Refused {
		unit := node.KubeletUnit
		if failed, ok := errors.AsType[*health.UnhealthyError](cause); ok &&
			failed.Condition.Type == health.ContainerdRunning {
			unit = node.ContainerdUnit
		}
		r.Log = h.Agent.Machine.Journal(ctx, unit, 10)
	}
	h.Log.Error("configuration rejected", "generation", g.ID, "reason", cause)
	return h.Store.KeepRejection(ctx, r)
}

func newRejection(h *Home, g *generation.Generation, reason string) history.Rejection {
	r := history.Rejection{
		Generation: g.ID, Received: g.Received, Reason: reason, Origin: g.Origin,
		Kubernetes: g.Config.Kubernetes.Version, Facts: g.Facts,
		At: time.Now().UTC().Truncate(time.Second),
	}
	if digest, err := h.Records().BundleDigest(); err == nil && digest == g.Received {
		r.Resource = h.Records().BundleResource()
	}
	return r
}

// rejectionOf returns the rejection of a target. The applied document is not rejected if it failed
// for other facts of the machine, or if too little memory may keep the rollback from its end.
func rejectionOf(h *Home, t *Target) (history.Rejection, bool) {
	r, rejected := h.Saved.Rejected.Of(t.Received)
	if rejected && h.Saved.Applied != nil && h.Saved.Applied.Received == t.Received {
		rejected = sameFacts(r.Facts, t.facts) && (h.Saved.Transition == nil ||
			t.facts.Memory >= h.Saved.Applied.Facts.Memory/2)
	}
	return r, rejected
}

// explain describes why a node is not healthy: the broken layer, who can fix it, and how.
func explain(ctx context.Context, w *work, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	c, at := w.config, w.target()
	e := inspect.NewEvidence(w.Node, c)
	inspect.ServiceEvidence(ctx, w.Node, &e)
	inspect.WithLogs(ctx, w.Node, &e)
	_ = inspect.SeeMachine(ctx, w.Node, &e) // without it, a condition is Unknown
	inspect.ProbeEvidence(ctx, w.Node, at, &e)
	if e.Probe.Err == nil {
		e.Probe = health.Tried(inspect.Allowed(ctx, w.Node, c, at))
	}
	if e.Probe.Err == nil {
		asking, cancel := context.WithTimeout(ctx, 2*inspect.AnswerTimeout)
		defer cancel()
		if client, err := access.JoinClient(asking, w.Node, c, at); err == nil {
			defer client.Close()
			if inspect.NodeEvidence(asking, client, &e) {
				e.Pods = health.Answered(client.PodsOn(asking, c.Agent.NodeName))
			}
			e.CSRs = health.Answered(client.CSRs(asking, c.Agent.NodeName))
			if keepsKubelet(w) {
				e.ServerVersion = health.Answer[string]{}
			}
		}
	}
	conditions := slices.DeleteFunc(health.Evaluate(health.Watch, e), health.Condition.NotChecked)
	worst, found := health.First(conditions)
	if !found {
		return fmt.Errorf("cannot make Node %s Ready within %s: %w; check `journalctl -u kubelet`, and "+
			"try again with a larger agent.readyTimeout", c.Agent.NodeName, c.ReadyTimeout(), cause)
	}
	return &health.UnhealthyError{Node: c.Agent.NodeName, Within: c.ReadyTimeout(), Condition: worst}
}

// undecided decides on a gate that was not passed in time. If only the API server does not answer,
// or does not write, the fault is elsewhere. A move goes back only to an address that answers. A
// rolled back node works again once its servers answer, including the issuer of its tokens.
func undecided(ctx context.Context, w *work, t *transition.Transition) error {
	// Excused are missing answers of the API server, or in a rollback of the issuer of tokens, and
	// missing writes of a cluster that writes nothing.
	written := !slices.ContainsFunc(w.seen, health.Unwritten) || writes(ctx, w)
	excused := func(c health.Condition) bool {
		return c.Type == health.APIServerReachable ||
			t.Kind == transition.Rollback && c.Reason == "CredentialUnavailable" ||
			!written && health.Unwritten(c)
	}
	wrong := slices.ContainsFunc(w.seen, func(c health.Condition) bool {
		return c.Status == health.False && !excused(c)
	})
	if !wrong && t.Kind == transition.Rollback {
		w.Warn("the API server or the issuer of the node's tokens does not answer; the health of the " +
			"restored node could not be checked; it was healthy before")
		return nil
	}
	if !wrong && t.Kind == transition.Change || t.Moves() {
		w.Alive()
		var before health.Evidence // with the previously applied configuration
		if from, err := w.Saved.Generations.Load(t.From); err == nil {
			before = inspect.NewEvidence(w.Node, w.Saved.ConfigOf(&from))
			inspect.ClusterEvidence(ctx, w.Node, w.Saved.At(), &before)
		}
		w.Alive()
		now := evaluateGate(ctx, w, t)
		if health.Healthy(now) {
			advise(ctx, w, t)
			return nil
		}
		back := health.AtFault(before, w.evidence, now, excused)
		if t.Moves() {
			back = before.Node.OK() || kube.NodeMissing(before.Node.Err)
		}
		if !back && wrong {
			return fmt.Errorf("%w: %w", transition.ErrUndecided, explain(ctx, w, errNotReady))
		}
		if !back {
			return fmt.Errorf("%w: the API server does not answer or does not accept writes",
				transition.ErrUndecided)
		}
	}
	w.Alive()
	w.view.Fail()
	return explain(ctx, w, errNotReady)
}

// writes reports whether the cluster can write the Node, or fails only for other reasons.
func writes(ctx context.Context, w *work) bool {
	ctx, cancel := context.WithTimeout(ctx, inspect.AnswerTimeout)
	defer cancel()
	client, err := access.Client(ctx, w.Node, w.config, w.target())
	if err != nil {
		return true
	}
	defer client.Close()
	return !kube.Unavailable(client.TouchNode(ctx, w.config.Agent.NodeName, time.Now()))
}
