package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// errNotReady is why the wait for the Node ended.
var errNotReady = errors.New("the Node did not become Ready in time")

// learn waits until a need is met, and notes what was learned with it.
func (w *work) learn(ctx context.Context, need state.Need) error {
	w.view.remain()
	if w.deadline.IsZero() {
		w.deadline = now().Add(w.config.ReadyTimeout())
	}
	bounded, cancel := context.WithDeadlineCause(ctx, w.deadline, errNotReady)
	defer cancel()
	err := w.waiting(bounded, func(ctx context.Context) error {
		if err := w.learnCredential(ctx); err != nil || need == node.Credential {
			return err
		}
		if need == node.Network {
			return w.learnNetwork(ctx)
		}
		return w.learnReady(ctx)
	})
	late := errors.Is(context.Cause(bounded), errNotReady)
	if err != nil && late && !errors.Is(err, transition.ErrSuperseded) {
		return w.explain(ctx, err)
	}
	if err != nil {
		return err
	}
	w.met[need] = true
	return w.learned(ctx, need)
}

// learned keeps what was learned: it holds also for the next process.
func (w *work) learned(ctx context.Context, need state.Need) error {
	known := &w.home.saved.Bindings
	known.PodCIDRs, known.ForeignCNI = w.bindings.PodCIDRs, w.bindings.ForeignCNI
	if need == node.Ready {
		w.ready = now()
		w.bindings.Joined = true
		w.home.saved.Bindings = w.bindings
		if err := w.saved.PublishJoin(ctx, w.config.Agent.NodeName); err != nil {
			return err
		}
		w.startFetching(ctx, slices.DeleteFunc(slices.Clone(w.artifacts), func(a artifact.Artifact) bool {
			return !a.Late // those are there
		}))
	}
	return w.saved.SaveBindings(ctx)
}

// learnCredential waits until kubelet has its certificate.
func (w *work) learnCredential(ctx context.Context) error {
	if !w.credentialed(w.config) {
		w.view.doing("waiting for kubelet to get its certificate")
	}
	for !w.credentialed(w.config) {
		w.beat()
		if !wait.Sleep(ctx, w.every(50*time.Millisecond)) {
			return fmt.Errorf("cannot wait for kubelet's certificate: %w", context.Cause(ctx))
		}
	}
	return nil
}

// learnNetwork waits until there is a pod network: a subnet that the cluster has allocated to the
// Node, or one that somebody else configures, which may come with kubelet.
func (w *work) learnNetwork(ctx context.Context) error {
	w.view.doing("waiting for a pod subnet, or for the cluster's own pod network")
	_, err := w.waitNode(ctx, func(n kube.Node) bool {
		w.bindings.PodCIDRs = podCIDRs(n)
		w.bindings.ForeignCNI = w.foreignCNI()
		return len(w.bindings.PodCIDRs) > 0 || len(w.bindings.ForeignCNI) > 0
	})
	if err != nil || len(w.bindings.ForeignCNI) > 0 {
		return err
	}
	return w.subnetsFit(ctx)
}

// subnetsFit refuses pod subnets of families that the machine does not have, or that are not those
// which the configuration counts on.
func (w *work) subnetsFit(ctx context.Context) error {
	seen, err := w.Machine.Facts(ctx, w.query(w.config))
	if err != nil {
		return err
	}
	e := health.Evidence{Now: now(), Wanted: w.wanted(w.config), Machine: &health.Machine{
		PodCIDRs: w.bindings.PodCIDRs, NoIPv6: seen.NoIPv6,
	}}
	return health.Problem(health.Evaluate(health.Network(), e))
}

// learnReady waits until the Node is Ready as the kubelet that runs now says it, and learns which
// cluster this is.
func (w *work) learnReady(ctx context.Context) error {
	w.view.doing("waiting for the Node to be Ready")
	is, err := w.Machine.UnitStatus(ctx, node.KubeletUnit)
	if err != nil {
		return err
	}
	if _, err = w.waitNode(ctx, readySince(is.Since)); err != nil {
		return err
	}
	if foreign := w.foreignCNI(); len(foreign) > 0 { // one that has come since replaces ours
		w.bindings.ForeignCNI = foreign
	}
	w.bindings.ClusterUID = w.learnCluster(ctx, w.config, w.target())
	return nil
}

// learnCluster is the uid of the node's cluster: what is known, else what the API server says; ""
// when it does not answer.
func (h *home) learnCluster(ctx context.Context, c config.Config, at where) string {
	if known := h.saved.Bindings.ClusterUID; known != "" {
		return known
	}
	uid, err := h.clusterUID(ctx, c, at)
	if err != nil {
		h.Log.Warn("cannot learn the cluster's uid", "error", err)
	}
	return uid
}

// knowCluster keeps the cluster's uid of a node that joined before it was learned.
func (h *home) knowCluster(ctx context.Context) error {
	if h.saved.Bindings.ClusterUID != "" || !h.saved.Joined() || h.saved.Applied == nil {
		return nil
	}
	h.saved.Bindings.ClusterUID = h.learnCluster(ctx, h.saved.ConfigOf(h.saved.Applied), h.saved.At())
	return h.saved.SaveBindings(ctx)
}

func (w *work) waitNode(ctx context.Context, until func(kube.Node) bool) (kube.Node, error) {
	client, err := w.kubeletClient(ctx, w.config, w.target())
	for err != nil { // the issuer of its tokens may be down
		w.beat()
		if !wait.Sleep(ctx, w.every(time.Second)) {
			return kube.Node{}, err
		}
		client, err = w.kubeletClient(ctx, w.config, w.target())
	}
	defer client.Close()
	return client.WaitNode(ctx, w.config.Agent.NodeName, w.beat, until)
}

func podCIDRs(n kube.Node) []string {
	if len(n.Spec.PodCIDRs) > 0 {
		return n.Spec.PodCIDRs
	}
	if n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return nil
}

// foreignCNI are the network configurations of somebody else that are on the machine now.
func (w *work) foreignCNI() []string {
	configs, err := w.Machine.CNIConfigs(w.config.Paths.CNI.ConfDir)
	if err != nil {
		return w.bindings.ForeignCNI
	}
	return foreignNetworks(configs)
}

// readySince tells whether the Node is Ready as a kubelet says it that started at the given time.
// What the kubelet before it has said remains in the Node for a while, and must not count.
// Heartbeats have whole seconds.
func readySince(started time.Time) func(kube.Node) bool {
	return func(n kube.Node) bool {
		ready := kube.Ready(n)
		return ready.Status == "True" &&
			!ready.LastHeartbeatTime.Time.Before(started.Truncate(time.Second))
	}
}

// waiting runs a wait. In the service other verbs may have the lock meanwhile: the machine is not
// being changed, and the record on disk says what is under way. A verb that has worked on that
// leaves another record: then what this process remembers is no longer so, and it gives up.
func (w *work) waiting(ctx context.Context, do func(context.Context) error) error {
	if !w.InService || w.lock == nil || w.saved.Transition == nil {
		return do(ctx)
	}
	w.fetch.idle(ctx) // only who has the lock writes into the store
	w.lock.Release()
	w.lock = nil
	err := w.whileOurs(ctx, do)
	l, lockErr := w.acquire(saved.LockFile, "agent")
	if lockErr != nil {
		return fmt.Errorf("%w: %w", transition.ErrSuperseded, lockErr)
	}
	w.lock = l
	ours, readErr := w.saved.Holds(saved.TransitionFile, w.saved.Transition)
	if readErr != nil || !ours {
		return errors.Join(transition.ErrSuperseded, readErr)
	}
	return err
}

// recordPause is how often a wait makes sure that nobody else has worked on what it waits for.
const recordPause = 2 * time.Second

// whileOurs runs a wait, which ends early when another verb has worked on the transition.
func (w *work) whileOurs(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for wait.Sleep(ctx, recordPause) {
			if ours, err := w.saved.Holds(saved.TransitionFile, w.saved.Transition); err == nil && !ours {
				cancel()
			}
		}
	})
	err := do(ctx)
	cancel()
	watching.Wait()
	return err
}
