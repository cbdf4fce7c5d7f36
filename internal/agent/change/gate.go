package change

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/nodeobject"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// gatePause is the average pause after the first evaluation of the gate. While the cluster is
// polled, the pause grows up to maxGatePause.
const gatePause, maxGatePause = 500 * time.Millisecond, 5 * time.Second

// gate waits until every condition of the gate holds. It first restarts, once, what only a restart
// fixes. A rollback passes even if the API server does not answer.
func (w *work) gate(ctx context.Context, t *transition.Transition) error {
	if err := errors.Join(reviveRuntime(ctx, w, t), renewSandboxes(ctx, w, t)); err != nil {
		return err
	}
	if t.Ungated {
		return nodeObject(ctx, w)
	}
	if w.Agent.Proving != nil {
		defer w.Agent.Proving()()
	}
	w.view.Remain()
	within, cancel := context.WithTimeout(ctx, w.config.ReadyTimeout())
	defer cancel()
	defer disconnectGate(w)
	w.seen = nil // it is from the gate before a rollback
	err := errNodeDiffers
	for tried := false; errors.Is(err, errNodeDiffers); tried = true {
		if tried { // if the API server answers, which the conditions report
			if err := nodeObject(within, w); err != nil {
				w.Log.Debug("cannot reconcile the Node object yet", "error", err)
			}
		}
		err = w.waiting(within, func(ctx context.Context) error {
			return untilHealthy(ctx, w, t, tried)
		})
	}
	if !errors.Is(err, errNotReady) || ctx.Err() != nil {
		return err
	}
	return undecided(ctx, w, t)
}

// errNodeDiffers ends a wait, since only the lock's holder changes the Node object and its ledger.
var errNodeDiffers = errors.New("the Node object differs from the configuration")

// untilHealthy changes nothing. It may return errNodeDiffers, but if tried not at the first check.
func untilHealthy(ctx context.Context, w *work, t *transition.Transition, tried bool) error {
	was, is := w.Saved.Applied, w.config.Node.Kubelet
	presses := t.Unpressed && !(maps.Equal(was.Config.Node.Kubelet.EvictionHard, is.EvictionHard) &&
		maps.Equal(was.Config.Node.Kubelet.KubeReserved, is.KubeReserved))
	first, healthy := w.Every(gatePause), time.Time{}
	for pause := first; ; tried = false {
		w.Alive()
		asked := time.Now()
		seen := evaluateGate(ctx, w, t)
		if !tried && nodeDiffers(ctx, w) {
			return errNodeDiffers
		}
		if ctx.Err() == nil || w.seen == nil { // a result cut short by the deadline is useless
			w.seen = seen
		}
		worst, failing := health.First(seen)
		// Kubelet may report pressure only in its second status, ten seconds after the first.
		if failing {
			healthy = time.Time{}
		} else if healthy = cmp.Or(healthy, asked); !presses ||
			asked.Sub(healthy) >= 3*w.evidence.Wanted.Settling {
			advise(ctx, w, t)
			return nil
		}
		w.view.Doing("waiting for the node to be healthy: " + cmp.Or(worst.Type, health.NodePressure))
		if !w.evidence.Node.Asked {
			pause = first
		}
		if !wait.Sleep(ctx, wait.Jitter(pause)) {
			return errNotReady
		}
		pause = min(pause*5/4, first*(maxGatePause/gatePause))
	}
}

// holding returns the conditions that can keep the gate closed. A first join does not wait for a
// lease, which kubelet renews after ten seconds. Only a change of kubelet's version is to blame for
// incompatible versions, only a join for other subnets, only a change for pressure that was absent
// before, and another API server for no settings.
func holding(w *work, t *transition.Transition, gate []health.Condition) []health.Condition {
	return slices.DeleteFunc(gate, func(c health.Condition) bool {
		switch unknown := c.Status == health.Unknown; c.Type {
		case health.LeaseRenewed:
			return unknown && t.Kind == transition.Join
		case health.VersionsCompatible:
			return unknown || keepsKubelet(w)
		case health.PodSubnetsAgree:
			return unknown || t.Kind != transition.Join
		case health.NodePressure:
			return t.Kind != transition.Change || t.Moves() || !t.Unpressed
		case health.RunsAsConfigured:
			return !unknown && t.To == t.From && t.Kind != transition.Repair
		}
		return false
	})
}

func keepsKubelet(w *work) bool {
	was := w.Saved.Applied
	return was != nil && was.Config.Kubernetes.Version == w.config.Kubernetes.Version
}

// advise warns of faults that only the operator can fix and that do not prevent the change.
func advise(ctx context.Context, w *work, t *transition.Transition) {
	if connectGate(ctx, w) == nil {
		inspect.ServicesEvidence(ctx, w.Node, w.client, &w.evidence)
	}
	inspect.WithServing(w.Node, &w.evidence)
	if t.Kind == transition.Join {
		awaitServices(ctx, w)
	}
	for _, c := range health.Evaluate(health.Advice, w.evidence) {
		if c.Status == health.False {
			w.Warn("%s", c.Message)
		}
	}
}

const servicesPause = 500 * time.Millisecond // the time between a join's checks of Services

// awaitServices waits a while for Services, and for a serving certificate of the cluster.
func awaitServices(ctx context.Context, w *work) {
	for tries := 0; ; tries++ {
		left := health.Patience(w.evidence)
		if left < time.Duration(tries+1)*servicesPause || time.Since(w.ready) > left {
			return
		}
		w.view.Doing("waiting for the cluster's Services")
		if !wait.Sleep(ctx, wait.Jitter(w.Every(servicesPause))) {
			return
		}
		bounded, cancel := context.WithDeadline(ctx, w.ready.Add(left))
		seen := w.evidence
		inspect.ClusterEvidence(bounded, w.Node, w.target(), &seen)
		inspect.WithServing(w.Node, &seen)
		if bounded.Err() == nil { // a result cut short by the deadline is useless
			w.evidence = seen
		}
		cancel()
	}
}

// evaluateGate returns the conditions that can keep the gate closed. It asks the cluster once the
// conditions of the machine hold, and for the pods once all others do.
func evaluateGate(ctx context.Context, w *work, t *transition.Transition) []health.Condition {
	e := inspect.NewEvidence(w.Node, w.config)
	inspect.ServiceEvidence(ctx, w.Node, &e)
	_ = inspect.SeeMachine(ctx, w.Node, &e) // without it, a condition is Unknown
	w.evidence = e
	if local := health.Evaluate(health.GateLocal, e); !health.Healthy(local) {
		return append(local, health.Condition{Type: health.NodeReady, Status: health.Unknown})
	}
	askGate(ctx, w, t, &e)
	if e.Node.Err != nil && e.Probe.Err == nil {
		inspect.ProbeEvidence(ctx, w.Node, w.target(), &e)
	}
	w.evidence = e
	return holding(w, t, health.Evaluate(health.Gate, e))
}

// askGate makes the gate's requests over the kept connection, or, if that fails, over a new one.
func askGate(ctx context.Context, w *work, t *transition.Transition, e *health.Evidence) {
	ctx, cancel := context.WithTimeout(ctx, inspect.AnswerTimeout)
	defer cancel()
	for kept := w.client != nil; ; kept = false {
		if err := connectGate(ctx, w); err != nil {
			e.Probe = health.Tried(err)
			return
		}
		inspect.NodeEvidence(ctx, w.client, e)
		if (e.Node.OK() || kube.NodeMissing(e.Node.Err)) && e.Credential.OK() {
			break
		}
		if disconnectGate(w); !kept {
			return
		}
	}
	rest := slices.DeleteFunc(holding(w, t, health.Evaluate(health.Gate, *e)),
		func(c health.Condition) bool { return c.Type == health.PodsSynchronized })
	if health.Healthy(rest) {
		e.Pods = health.Answered(w.client.PodsOn(ctx, w.config.Agent.NodeName))
	}
}

func connectGate(ctx context.Context, w *work) (err error) {
	if w.client == nil {
		w.client, err = access.Client(ctx, w.Node, w.config, w.target())
	}
	return err
}

func disconnectGate(w *work) {
	if w.client != nil {
		w.client.Close()
		w.client = nil
	}
}

// nodeDiffers reports whether nodeObject would change the Node that the gate has seen.
func nodeDiffers(ctx context.Context, w *work) bool {
	seen := w.evidence.Node
	journal, err := apply.OpenJournal(w.Agent.Machine, saved.StateDir, saved.NodeLedgerFile)
	if err != nil || !seen.Asked {
		return false
	}
	object := &nodeobject.Host{Node: w.config.Agent.NodeName}
	object.See(seen.Value, seen.Err)
	plan, err := nodePlan(ctx, w, &apply.Engine{Host: object, Disk: w.Agent.Machine, Journal: journal})
	return err == nil && (len(plan) > 0 || !journal.Exists())
}
