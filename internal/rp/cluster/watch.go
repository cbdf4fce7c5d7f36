package cluster

import (
	"context"
	"sync"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watchRequests queues the certificate requests of kubelets to a signer, and returns those that are
// known.
func (w *worker) watchRequests(
	ctx context.Context, wg *sync.WaitGroup, s *session, signer string,
) cache.Store {
	selector := fields.OneTermEqualSelector("spec.signerName", signer).String()
	client := s.connection.Watches
	requests := client.CertificatesV1().CertificateSigningRequests()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
			error) {
			o.FieldSelector = selector
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			return requests.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
			error) {
			o.FieldSelector = selector
			return requests.Watch(ctx, o)
		},
	}
	see := func(o any) {
		if csr, ok := o.(*certificates.CertificateSigningRequest); ok && concerns(csr) {
			w.requests.Add(task{taskRequest, csr.Name})
		}
	}
	known, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(source, client),
		ObjectType:    &certificates.CertificateSigningRequest{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, o any) { see(o) },
		},
		Transform: withoutManagedFields,
	})
	wg.Go(func() { controller.RunWithContext(ctx) })
	return known
}

// listTimeout bounds the first reading of a list, which may be long.
const listTimeout = 6 * requestTimeout

// withoutManagedFields drops the bulk of an object, which is nothing to us.
func withoutManagedFields(o any) (any, error) {
	if a, ok := o.(metav1.ObjectMetaAccessor); ok {
		a.GetObjectMeta().SetManagedFields(nil)
	}
	return o, nil
}

// watchNodes notes the Nodes that change.
func (w *worker) watchNodes(ctx context.Context, wg *sync.WaitGroup, s *session) {
	client := s.connection.Watches
	nodes := client.CoreV1().Nodes()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
			error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
			error) {
			return nodes.Watch(ctx, o)
		},
	}
	// A Node that is gone, which may have had a pod subnet, is noted with others that go.
	gone := func(any) { w.tasks.AddAfter(task{kind: taskSubnets}, subnetsPause) }
	see := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if n, ok := o.(*seenNode); ok {
			w.readiness.note(w.key + "/" + n.name())
		}
	}
	known, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(source, client),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, o any) { see(o) },
			DeleteFunc: func(o any) { see(o); gone(o) },
		},
		Transform: seeNode,
	})
	s.nodes = known
	wg.Go(func() { controller.RunWithContext(ctx) })
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			s.nodesKnown.Store(true)
			w.readiness.noteAll()
			w.tasks.Add(task{kind: taskSubnets})
		}
	})
}
