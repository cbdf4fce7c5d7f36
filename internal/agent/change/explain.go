package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// explain says why a node is not healthy: which layer is broken, who can mend it, and how.
func explain(ctx context.Context, w *work, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	c := w.config
	at := w.target()
	e := health.Evidence{Now: inspect.Now(), Wanted: inspect.Wanted(w.Home.Node.Env, c)}
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
		if client, err := inspect.JoinClient(asking, w.Home.Node, c, at); err == nil {
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
	conditions := slices.DeleteFunc(health.Evaluate(health.Watch(), e), health.Condition.NotChecked)
	worst, found := health.First(conditions)
	if !found {
		return fmt.Errorf("cannot make Node %s Ready within %s: %w; check `journalctl -u kubelet`, and "+
			"try again with a larger agent.readyTimeout", c.Agent.NodeName, c.ReadyTimeout(), cause)
	}
	return &UnhealthyError{Node: c.Agent.NodeName, Within: c.ReadyTimeout(), Condition: worst}
}

// UnhealthyError tells that a node did not become healthy in time, and the condition that decides.
type UnhealthyError struct {
	Node      string
	Within    time.Duration
	Condition health.Condition
}

// failedUnitLog are the last lines of the unit that made a change fail.
func failedUnitLog(ctx context.Context, h *Home, cause error) []string {
	unit := node.KubeletUnit
	if failed, ok := errors.AsType[*UnhealthyError](cause); ok &&
		failed.Condition.Type == health.ContainerdRunning {
		unit = node.ContainerdUnit
	}
	return h.Agent.Machine.Journal(ctx, unit, 10)
}

// readySince reports whether the Node is Ready as a kubelet says it that started at the given time.
// What the kubelet before it has said remains in the Node for a while, and must not count.
// Heartbeats have whole seconds.
func readySince(started time.Time) func(kube.Node) bool {
	return func(n kube.Node) bool {
		ready := kube.Ready(n)
		return ready.Status == "True" &&
			!ready.LastHeartbeatTime.Time.Before(started.Truncate(time.Second))
	}
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("cannot make Node %s Ready within %s: %s: %s",
		e.Node, e.Within, e.Condition.Type, e.Condition.Message)
}
