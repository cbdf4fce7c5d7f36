package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// waitCredential waits until kubelet has its certificate.
func (s *session) waitCredential(ctx context.Context, g *goal) error {
	every := s.Poll
	if every == 0 {
		every = 50 * time.Millisecond
	}
	for !s.credentialed(g.config) {
		if !sleep(ctx, every) {
			return fmt.Errorf("cannot wait for kubelet's certificate: %w", context.Cause(ctx))
		}
	}
	return nil
}

// allocated tells whether the cluster has given the Node its pod subnet.
func allocated(n kube.Node) bool { return n.Spec.PodCIDR != "" }

// ready tells whether the Node is Ready.
func ready(n kube.Node) bool { return kube.Ready(n).Status == "True" }

// readySince tells whether the Node is Ready as a kubelet says it that started at the given time. What the kubelet before it has
// said stays in the Node for a while, and must not count. Heartbeats have whole seconds.
func readySince(started time.Time) func(kube.Node) bool {
	return func(n kube.Node) bool {
		return ready(n) && !kube.Ready(n).LastHeartbeatTime.Time.Before(started.Truncate(time.Second))
	}
}

// readyNow asks once, and briefly, whether the Node is Ready.
func (s *session) readyNow(ctx context.Context, g *goal) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cluster, err := s.kubelet(g.config)
	if err != nil {
		return false
	}
	defer cluster.Close()
	n, err := cluster.Node(ctx, g.config.Agent.NodeName)
	return err == nil && ready(n) && len(unlabelled(n, g)) == 0
}

// unlabelled returns what has to be patched for the Node to carry the configured labels and no longer those of the
// configuration before; nil values remove. Kubelet sets labels at registration only.
func unlabelled(n kube.Node, g *goal) map[string]*string {
	patch := make(map[string]*string)
	if g.applied != nil {
		if before, err := g.applied.parse(); err == nil {
			for key := range before.Node.Labels {
				if _, there := n.Labels[key]; there {
					patch[key] = nil
				}
			}
		}
	}
	for key, value := range g.config.Node.Labels {
		if n.Labels[key] == value {
			delete(patch, key)
			continue
		}
		patch[key] = &value
	}
	return patch
}

// label makes the Node carry the configured labels.
func (s *session) label(ctx context.Context, cluster *kube.Client, g *goal) error {
	n, err := cluster.Node(ctx, g.config.Agent.NodeName)
	if err != nil {
		return err
	}
	patch := unlabelled(n, g)
	if len(patch) == 0 {
		return nil
	}
	return cluster.PatchLabels(ctx, g.config.Agent.NodeName, patch)
}

// explain finds out why kubelet did not join in time: which layer is broken and what to do.
func (s *session) explain(ctx context.Context, g *goal, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	fault := kube.Diagnose(s.evidence(ctx, g))
	return fmt.Errorf("cannot make Node %s Ready within %s: %w", g.config.Agent.NodeName, g.config.ReadyTimeout(), errors.Join(fault, quiet(cause)))
}

// quiet drops a cause that says no more than that time is up.
func quiet(err error) error {
	if errors.Is(err, errNotReady) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// evidence gathers what a diagnosis needs, from the machine and, as far as it answers, from the cluster.
func (s *session) evidence(ctx context.Context, g *goal) kube.Evidence {
	e := kube.Evidence{NodeName: g.config.Agent.NodeName}
	e.Containerd = s.service(ctx, "containerd.service")
	e.Kubelet = s.service(ctx, "kubelet.service")
	if seen, err := s.Machine.Facts(ctx, query(g.config)); err == nil {
		e.CNIConfigs = seen.CNIConfigs
	}
	e.Probe = s.reach(ctx, g.config)
	if e.Probe != nil { // who cannot be reached cannot be asked
		return e
	}
	if cluster := s.asker(ctx, g.config); cluster != nil {
		defer cluster.Close()
		if n, err := cluster.Node(ctx, e.NodeName); err == nil {
			e.Node = &n
		}
		if csrs, err := cluster.CSRs(ctx, e.NodeName); err == nil {
			e.CSRs = csrs
		}
	}
	return e
}

// asker returns a client with whatever credential there is: kubelet's, else what it joins with, which may
// read the CSRs.
func (s *session) asker(ctx context.Context, c config.Config) *kube.Client {
	if s.credentialed(c) {
		if cluster, err := s.kubelet(c); err == nil {
			return cluster
		}
	}
	where, err := s.cluster(ctx, c)
	token := ""
	if b := c.Azure.BootstrapToken; b != nil {
		token = b.Token.Reveal()
	} else if err == nil {
		token, err = s.kubeletToken(ctx, c)
	}
	if err != nil {
		return nil
	}
	cluster, err := kube.FromToken(where.Server, []byte(where.CA), token, c.ProxyFunc())
	if err != nil {
		return nil
	}
	return cluster
}

// service is how a unit is, with its last log lines.
func (s *session) service(ctx context.Context, unit string) kube.Service {
	is, err := s.Machine.Observe(ctx, state.UnitKey(unit))
	if err != nil {
		return kube.Service{}
	}
	return kube.Service{Active: is.(state.Unit).Active, Log: s.Machine.Journal(ctx, unit, 50)}
}
