package rp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

const (
	// leaderTTL is how long after a replica has died another takes its clusters over.
	leaderTTL = 10 * time.Second
	// sweepInterval is how soon what time alone brings about is done.
	sweepInterval = 2 * time.Second
	// sweepBatch is how many nodes one sweep changes: new facts reach a large cluster in a while, and not all of its agents at once.
	sweepBatch = 500
	// probeInterval is how old what is known of a cluster may be; one that cannot be reached is asked more often.
	probeInterval, retryInterval = 5 * time.Minute, 5 * time.Second
	// orphanInterval is how often a cluster is searched for Secrets without a credential, which only a restored backup leaves.
	orphanInterval = 10 * time.Minute
)

// Control works on the clusters until ctx ends: each cluster by one replica, chosen by etcd.
func (s *Server) Control(ctx context.Context, replica string) error {
	session, err := concurrency.NewSession(s.Store.Client(), concurrency.WithTTL(int(leaderTTL.Seconds())), concurrency.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("cannot take part in the election of controllers: %w", err)
	}
	defer session.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	working := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range working {
			stop()
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		rows, _, err := s.Index.Clusters("", "", 1<<30)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, row := range rows {
			there[row.Key] = true
			if working[row.Key] == nil {
				inner, cancel := context.WithCancel(ctx)
				working[row.Key] = cancel
				wg.Go(func() { s.campaign(inner, session, row.Key, replica) })
			}
		}
		for key, stop := range working {
			if !there[key] {
				stop()
				delete(working, key)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-session.Done():
			return errors.New("cannot stay in the election of controllers: the lease has run out")
		case <-tick.C:
		}
	}
}

// campaign waits to be the one that works on a cluster, and then does.
func (s *Server) campaign(ctx context.Context, session *concurrency.Session, cluster, replica string) {
	election := concurrency.NewElection(session, "/flexnode/v1/leaders/"+cluster)
	if err := election.Campaign(ctx, replica); err != nil {
		if ctx.Err() == nil {
			s.Log.Warn("cannot become a cluster's controller", "cluster", cluster, slog.Any("error", err))
		}
		return
	}
	s.Log.Info("controller of cluster", "cluster", cluster, "replica", replica)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = election.Resign(ctx) // else the lease ends it
	}()
	s.work(ctx, cluster)
}

// work is all that is done for a cluster, until ctx ends.
func (s *Server) work(ctx context.Context, cluster string) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		s.every(ctx, sweepInterval, "sweep", func(ctx context.Context) error { return s.Sweep(ctx, cluster) })
	})
	wg.Go(func() { s.watchCredentials(ctx, cluster) })
	wg.Go(func() { s.keepProbing(ctx, cluster) })
	wg.Go(func() {
		s.every(ctx, orphanInterval, "orphans", func(ctx context.Context) error { return s.sweepOrphans(ctx, cluster) })
	})
	wg.Go(func() { s.watchCSRs(ctx, cluster) })
	wg.Go(func() { s.watchNodes(ctx, cluster) })
}

// every does something now and again and again, and says when it cannot.
func (s *Server) every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	for ctx.Err() == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("controller", "work", what, slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

func (s *Server) keepProbing(ctx context.Context, cluster string) {
	for ctx.Err() == nil {
		wait := probeInterval
		if err := s.probe(ctx, cluster); err != nil && ctx.Err() == nil {
			s.Log.Warn("cluster cannot be reached", "cluster", cluster, slog.Any("error", err))
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Sweep does for a cluster what is due: credentials that time, a crash or an unreachable cluster has left, and nodes that are not as their
// cluster is.
func (s *Server) Sweep(ctx context.Context, cluster string) error {
	row, err := s.Index.Cluster(cluster)
	if err != nil || !row.Exists() {
		return err
	}
	var errs []error
	for _, key := range s.Index.Unsettled(cluster+"/", row.Value.Facts, api.Deleting, api.Failed, sweepBatch) {
		errs = append(errs, ignoreConflict(s.settle(ctx, row, key)))
	}
	credentials, err := s.Store.Credentials.List(ctx, cluster+"/")
	if err != nil {
		return err
	}
	for _, c := range credentials {
		errs = append(errs, s.sweepCredential(ctx, c))
	}
	return errors.Join(errs...)
}

func ignoreConflict(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

func (s *Server) sweepCredential(ctx context.Context, c store.Row[store.Credential]) error {
	node, err := s.Index.Node(c.Value.Node)
	if err != nil {
		return err
	}
	wanted := node.Exists() && node.Value.Credential == c.Key
	settled := c.Value.State == store.Live || c.Value.State == store.Consumed
	if settled && due(c.Value, wanted, s.Now()) == c.Value.State {
		return nil
	}
	if fresh := s.Now().Sub(c.Value.Since) < sweepInterval; fresh { // its caller is at work on it
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.advance(ctx, c.Key)
}

// watchCredentials advances a credential as soon as it has to be revoked, so that a sweep's interval is not waited for.
func (s *Server) watchCredentials(ctx context.Context, cluster string) {
	s.every(ctx, time.Second, "credentials", func(ctx context.Context) error {
		return s.Store.Credentials.Watch(ctx, cluster+"/", func(c store.Row[store.Credential]) {
			if c.Value.State == store.Revoking {
				s.revokeNow(ctx, c.Key)
			}
		})
	})
}

// sweepOrphans deletes Secrets of ours that no credential stands behind.
func (s *Server) sweepOrphans(ctx context.Context, cluster string) error {
	target, err := s.target(ctx, cluster)
	if err != nil {
		return err
	}
	secrets, err := target.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{providerLabel: "flexnode-rp"}.String()})
	if err != nil {
		return clusterError(cluster, "look for bootstrap tokens in", err)
	}
	for _, secret := range secrets.Items {
		row, err := s.Store.Credentials.Get(ctx, cluster+"/"+secret.Labels[ownerLabel])
		if err != nil {
			return err
		}
		if row.Exists() || s.Now().Sub(secret.CreationTimestamp.Time) < time.Minute {
			continue
		}
		s.Audit.Warn("bootstrap token without a credential deleted", "cluster", cluster, "secret", secret.Name)
		if err := target.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}}); err != nil {
			return clusterError(cluster, "delete a bootstrap token in", err)
		}
	}
	return nil
}

// watchCSRs reviews certificate requests as they come. What it could not answer is reviewed again when the list is read again.
func (s *Server) watchCSRs(ctx context.Context, cluster string) {
	selector := fields.OneTermEqualSelector("spec.signerName", certificates.KubeAPIServerClientKubeletSignerName).String()
	s.every(ctx, retryInterval, "certificate requests", func(ctx context.Context) error {
		target, err := s.target(ctx, cluster)
		if err != nil {
			return err
		}
		client := target.CertificatesV1().CertificateSigningRequests()
		source := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = selector
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = selector
				return client.Watch(ctx, o)
			},
		}
		return follow(ctx, source, &certificates.CertificateSigningRequest{}, func(o any) {
			csr, ok := o.(*certificates.CertificateSigningRequest)
			if !ok {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if err := s.review(ctx, target, cluster, csr); err != nil {
				s.Log.Warn("cannot review a certificate request", "cluster", cluster, "csr", csr.Name, slog.Any("error", err))
			}
		})
	})
}

// watchNodes keeps the Ready condition of the Nodes that have a flexNodeConfig.
func (s *Server) watchNodes(ctx context.Context, cluster string) {
	s.every(ctx, retryInterval, "nodes", func(ctx context.Context) error {
		target, err := s.target(ctx, cluster)
		if err != nil {
			return err
		}
		client := target.CoreV1().Nodes()
		source := &cache.ListWatch{
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return client.Watch(ctx, o) },
		}
		return follow(ctx, source, &corev1.Node{}, func(o any) {
			if node, ok := o.(*corev1.Node); ok {
				if err := s.noteReady(ctx, cluster, node); err != nil && ctx.Err() == nil {
					s.Log.Warn("cannot note a node's state", "cluster", cluster, "node", node.Name, slog.Any("error", err))
				}
			}
		})
	})
}

// resync is how often everything is looked at again, whether it has changed or not.
const resync = time.Minute

// follow calls a function with every object there is and with each that changes, until ctx ends.
func follow(ctx context.Context, source cache.ListerWatcher, kind runtime.Object, see func(any)) error {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: kind, ResyncPeriod: resync,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }},
		Transform: func(o any) (any, error) {
			if a, ok := o.(metav1.ObjectMetaAccessor); ok {
				a.GetObjectMeta().SetManagedFields(nil) // the bulk of an object, and nothing to us
			}
			return o, nil
		},
	})
	controller.RunWithContext(ctx)
	return ctx.Err()
}

// noteReady writes down a Node's Ready condition when it has changed.
func (s *Server) noteReady(ctx context.Context, cluster string, node *corev1.Node) error {
	key := cluster + "/" + node.Name
	if _, ours := s.Index.Poll(key); !ours {
		return nil
	}
	ready := &api.Condition{Type: "Ready", Status: "Unknown"}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = &api.Condition{Type: "Ready", Status: string(c.Status), LastTransitionTime: c.LastTransitionTime.UTC(), Reason: c.Reason}
		}
	}
	known, err := s.Index.Status(key)
	if err != nil || known.Value.Ready != nil && *known.Value.Ready == *ready {
		return err
	}
	row, err := s.Store.Nodes.Get(ctx, key)
	if err != nil || !row.Exists() {
		return err
	}
	return s.changeStatus(ctx, row, func(st *store.Status) bool {
		if st.Ready != nil && *st.Ready == *ready {
			return false
		}
		st.Ready = ready
		return true
	})
}
