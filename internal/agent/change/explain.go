package change

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// explain says why a node is not healthy: which layer is broken, who can mend it, and how.
func explain(ctx context.Context, w *work, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	c := w.config
	at := w.target()
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

// failedUnitLog are the last lines of the unit that made a change fail.
func failedUnitLog(ctx context.Context, h *Home, cause error) []string {
	unit := node.KubeletUnit
	if failed, ok := errors.AsType[*health.UnhealthyError](cause); ok &&
		failed.Condition.Type == health.ContainerdRunning {
		unit = node.ContainerdUnit
	}
	return h.Agent.Machine.Journal(ctx, unit, 10)
}
