package change

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// explain says why a node is not healthy: which layer is broken, who can mend it, and how.
func explain(ctx context.Context, w *work, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	c, at := w.config, w.target()
	e := inspect.NewEvidence(w.Home.Node, c)
	inspect.ServiceEvidence(ctx, w.Home.Node, &e)
	inspect.WithLogs(ctx, w.Home.Node, &e)
	if seen, err := w.Agent.Machine.Facts(ctx, inspect.Query(w.Home.Node, c)); err == nil {
		if e.Machine, err = inspect.MachineEvidence(ctx, w.Home.Node, c, seen); err != nil {
			return errors.Join(cause, err)
		}
	}
	inspect.ProbeEvidence(ctx, w.Home.Node, c, at, &e)
	if err := e.Probe.Err; err == nil {
		if err = inspect.Allowed(ctx, w.Home.Node, c, at); err != nil {
			e.Probe = health.Tried(err)
		}
	}
	if e.Probe.Err == nil {
		asking, cancel := context.WithTimeout(ctx, 2*inspect.ClusterTimeout)
		defer cancel()
		if client, err := access.JoinClient(asking, w.Home.Node, c, at); err == nil {
			defer client.Close()
			if inspect.NodeEvidence(asking, w.Home.Node, client, c, at, &e) {
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

func failedUnitLog(ctx context.Context, h *Home, cause error) []string {
	unit := node.KubeletUnit
	if failed, ok := errors.AsType[*health.UnhealthyError](cause); ok &&
		failed.Condition.Type == health.ContainerdRunning {
		unit = node.ContainerdUnit
	}
	return h.Agent.Machine.Journal(ctx, unit, 10)
}

// undecided judges a gate that was not passed in time. Where only the API server does not answer,
// or does not write, the fault is elsewhere. A node that was rolled back works again as soon as
// what it asks for answers, the issuer of its tokens included.
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
		var before health.Evidence // with the configuration applied before
		if from, err := w.Saved.Generations.Load(t.From); err == nil {
			inspect.ClusterEvidence(ctx, w.Home.Node, w.Saved.ConfigOf(&from), w.Saved.At(), &before)
		}
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

// excuses returns whether something else than the change is at fault for a condition: an API
// server, or a rollback's issuer of tokens, that does not answer, or a cluster that writes nothing.
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

// writes reports whether the cluster writes to the Node, unless other reasons keep it from that.
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
