package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
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

var errNotReady = errors.New("the Node did not become Ready in time")

// learn waits until a need is met, and records what it learns.
func learn(ctx context.Context, w *work, need state.Need) error {
	w.view.Remain()
	if w.deadline.IsZero() {
		w.deadline = time.Now().Add(w.config.ReadyTimeout())
	}
	bounded, cancel := context.WithDeadlineCause(ctx, w.deadline, errNotReady)
	defer cancel()
	err := w.waiting(bounded, func(ctx context.Context) error {
		if err := learnCredential(ctx, w); err != nil || need == node.Credential {
			return err
		}
		if need == node.Network {
			return learnNetwork(ctx, w)
		}
		return learnReady(ctx, w)
	})
	late := errors.Is(context.Cause(bounded), errNotReady)
	if err != nil && late && !errors.Is(err, transition.ErrSuperseded) {
		return explain(ctx, w, err)
	}
	if err != nil {
		return err
	}
	w.met[need] = true
	return learned(ctx, w, need)
}

func learned(ctx context.Context, w *work, need state.Need) error {
	known := &w.Saved.Bindings
	known.PodCIDRs, known.ForeignCNI = w.bindings.PodCIDRs, w.bindings.ForeignCNI
	if need == node.Ready {
		// Kubelet does not sync all its files. The bootstrap token goes next.
		dir, err := os.Open(w.Path(w.config.Paths.Kubernetes.KubeletDir))
		if err == nil {
			err = errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
		}
		if err != nil {
			return fmt.Errorf("cannot sync kubelet's files: %w", err)
		}
		w.ready, w.bindings.Joined = time.Now(), true
		w.Saved.Bindings = w.bindings
		if err := w.Store.PublishJoin(ctx, w.config.Agent.NodeName); err != nil {
			return err
		}
		startFetching(ctx, w, slices.DeleteFunc(slices.Clone(w.artifacts),
			func(a artifact.Artifact) bool {
				return !a.Late // the others are there already
			}))
	}
	return w.Store.SaveBindings(ctx)
}

func learnCredential(ctx context.Context, w *work) error {
	for !access.Held(w.Node, w.config) {
		w.view.Doing("waiting for kubelet's certificate") // also a sign of life
		if !wait.Sleep(ctx, w.Every(50*time.Millisecond)) {
			return fmt.Errorf("cannot wait for kubelet's certificate: %w", context.Cause(ctx))
		}
	}
	return nil
}

// learnNetwork waits for a pod subnet of the cluster, or for another program's network.
func learnNetwork(ctx context.Context, w *work) error {
	w.view.Doing("waiting for a pod subnet, or for the cluster's own pod network")
	err := waitNode(ctx, w, func(n kube.Node) bool {
		w.bindings.PodCIDRs = n.Spec.PodCIDRs
		w.bindings.ForeignCNI = inspect.Foreign(w.Node, w.config, w.bindings.ForeignCNI)
		return len(w.bindings.PodCIDRs) > 0 || len(w.bindings.ForeignCNI) > 0
	})
	if err != nil || len(w.bindings.ForeignCNI) > 0 {
		return err
	}
	// The machine may lack a family of the subnets, or be configured for others.
	seen, err := w.Agent.Machine.Facts(ctx, inspect.Query(w.Node, w.config))
	if err != nil {
		return err
	}
	e := inspect.NewEvidence(w.Node, w.config)
	e.Machine = &health.Machine{
		PodCIDRs: w.bindings.PodCIDRs, Facts: seen, Server: w.bindings.Server,
	}
	return health.Problem(health.Evaluate(health.Network, e))
}

// learnReady waits until the running kubelet reports Ready, and identifies the cluster.
func learnReady(ctx context.Context, w *work) error {
	w.view.Doing("waiting for the Node to be Ready")
	// Kubelet's start time is read again each time: the clock may be set during the wait.
	err := waitNode(ctx, w, func(n kube.Node) bool {
		is, err := w.Reader.UnitStatus(ctx, node.KubeletUnit)
		return err == nil && kube.ReadySince(is.Since)(n)
	})
	if err != nil {
		return err
	}
	// A new network of the cluster replaces ours.
	w.bindings.ForeignCNI = inspect.Foreign(w.Node, w.config, w.bindings.ForeignCNI)
	// Only the cluster's name may have been compared, if kubelet had lost its certificate.
	w.bindings.ClusterUID = learnCluster(ctx, w.Home, w.config, w.target())
	return nil
}

// learnCluster returns the cluster's uid: the API server's, else the known one or "".
func learnCluster(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) string {
	uid, err := inspect.Ask(ctx, h.Node, access.JoinClient, c, at, (*kube.Client).ClusterUID)
	inspect.LogError(h.Log, "cannot learn the cluster's uid", err)
	return cmp.Or(uid, h.Saved.Bindings.ClusterUID)
}

func waitNode(ctx context.Context, w *work, until func(kube.Node) bool) error {
	client, err := access.Client(ctx, w.Node, w.config, w.target())
	for err != nil { // the issuer of its tokens may be down
		w.Alive()
		if !wait.Sleep(ctx, w.Every(time.Second)) {
			return err
		}
		client, err = access.Client(ctx, w.Node, w.config, w.target())
	}
	defer client.Close()
	_, err = client.WaitNode(ctx, w.config.Agent.NodeName, w.Alive, until)
	return err
}

// waiting runs a wait. In the service other verbs may take the lock meanwhile. If one has worked on
// the transition, its record differs and this process gives up.
func (w *work) waiting(ctx context.Context, do func(context.Context) error) error {
	if !w.Agent.InService || w.lock == nil || w.Saved.Transition == nil {
		return do(ctx)
	}
	w.fetch.Idle(ctx) // only the lock's holder may write to the store
	w.lock.Close()
	w.lock = nil
	err := whileOurs(ctx, w, do)
	l, lockErr := Acquire(w.Agent, saved.LockFile, "agent")
	if lockErr != nil {
		return fmt.Errorf("%w: %w", transition.ErrSuperseded, lockErr)
	}
	w.lock = l
	ours, readErr := w.Saved.Holds(saved.TransitionFile, w.Saved.Transition)
	if readErr != nil || !ours {
		return errors.Join(transition.ErrSuperseded, readErr)
	}
	return err
}

const recordPause = 2 * time.Second // the interval of checking that no other process has taken over

func whileOurs(ctx context.Context, w *work, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for wait.Sleep(ctx, recordPause) {
			if ours, err := w.Saved.Holds(saved.TransitionFile, w.Saved.Transition); err == nil && !ours {
				cancel()
			}
		}
	})
	err := do(ctx)
	cancel()
	watching.Wait()
	return err
}
