package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// listTimeout bounds the first reading of a list, which may be long.
	listTimeout = 6 * requestTimeout
	// maxNodes and maxRequests are how many of a kind a cluster may have, of requests for each
	// signer: what is kept of them is all that grows with a cluster.
	maxNodes, maxRequests = 20_000, 10_000
	// maxVersion bounds versions of objects, maxContinue the mark by which a list goes on.
	maxVersion, maxContinue = 64, 4 << 10
)

// pages are how many pages of lists are read at once, of all clusters: each takes some memory
// until it is reduced. Who waits too long for his turn goes on without it.
var pages = make(chan struct{}, 8)

// kind is what is watched of a cluster.
type kind struct {
	*cache.ListWatch
	session *session
	example runtime.Object // of what is kept
	most    int
	// reduce is what is kept of an object.
	reduce func(runtime.Object) runtime.Object
	// see is told of each that changes, gone of each that ends beside.
	see, gone func(any)
}

// IsWatchListSemanticsUnSupported has lists be read in pages, whose sizes are bounded.
func (k kind) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWithContext. What does harm ends the session.
func (k kind) ListWithContext(ctx context.Context, o metav1.ListOptions) (
	list runtime.Object, err error,
) {
	defer func() {
		if r := recover(); r != nil {
			err = crashed(r)
		}
		if errors.Is(err, errHarm) || errors.Is(err, errCrash) {
			k.session.fail(err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return k.all(ctx, o)
}

// all reads the list as it is now, in pages.
func (k kind) all(ctx context.Context, o metav1.ListOptions) (*internalversion.List, error) {
	all := &internalversion.List{}
	o.Limit, o.ResourceVersion, o.ResourceVersionMatch = pageItems, "", ""
	for range 2 + 2*k.most/pageItems {
		page, err := k.page(ctx, o)
		if err != nil {
			return nil, err
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			if kept, ok := k.keep(item); ok {
				all.Items = append(all.Items, kept)
			}
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		all.ResourceVersion, o.Continue = m.GetResourceVersion(), m.GetContinue()
		switch {
		case len(all.Items) > k.most || len(all.ResourceVersion) > maxVersion ||
			len(o.Continue) > maxContinue:
			return nil, errTooMany
		case o.Continue == "":
			return all, nil
		}
	}
	return nil, errTooMany
}

// page reads one page, in its turn.
func (k kind) page(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	select {
	case pages <- struct{}{}:
		defer func() { <-pages }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(requestTimeout):
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return k.ListWatch.ListWithContext(ctx, o)
}

// WatchWithContext implements cache.WatcherWithContext.
func (k kind) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	events, err := k.ListWatch.WatchWithContext(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Error {
			return e, true
		}
		kept, ok := k.keep(e.Object)
		return watch.Event{Type: e.Type, Object: kept}, ok
	}), nil
}

// keep is what is kept of an object, if Kubernetes can have one of its name and version. Only
// bookmarks, which tell a version alone, have no name.
func (k kind) keep(o runtime.Object) (kept runtime.Object, ok bool) {
	defer k.session.recovered()
	m, err := meta.Accessor(o)
	if err != nil || m.GetName() != "" && !isName(m.GetName()) ||
		len(m.GetResourceVersion()) > maxVersion {
		return nil, false
	}
	return k.reduce(o), true
}

// errTooMany is a cluster with more objects of a kind than are watched.
var errTooMany = fmt.Errorf("%w: it has too many Nodes or certificate requests", errHarm)

// follow watches a kind as long as a session, which it ends when there are too many.
func (k kind) follow(ctx context.Context, wg *sync.WaitGroup, s *session) (
	cache.Store, cache.Controller,
) {
	k.session = s
	known := 0 // handlers are called one after the other
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: k,
		ObjectType:    k.example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				defer s.recovered()
				if known++; known > k.most {
					s.fail(errTooMany)
				}
				k.see(o)
			},
			UpdateFunc: func(_, o any) {
				defer s.recovered()
				k.see(o)
			},
			DeleteFunc: func(o any) {
				defer s.recovered()
				known--
				k.gone(o)
			},
		},
	})
	wg.Go(func() { controller.RunWithContext(ctx) })
	return store, controller
}

// watchRequests queues the certificate requests of kubelets to a signer, and returns those that are
// known.
func (w *worker) watchRequests(
	ctx context.Context, wg *sync.WaitGroup, s *session, signer string,
) cache.Store {
	requests := s.connection.Watches.CertificatesV1().CertificateSigningRequests()
	selector := fields.OneTermEqualSelector("spec.signerName", signer).String()
	known, _ := kind{
		example: &certificates.CertificateSigningRequest{}, most: maxRequests,
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
				error) {
				o.FieldSelector = selector
				return requests.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
				error) {
				o.FieldSelector = selector
				return requests.Watch(ctx, o)
			},
		},
		reduce: func(o runtime.Object) runtime.Object {
			return reduceRequest(o.(*certificates.CertificateSigningRequest))
		},
		see: func(o any) {
			csr, ok := o.(*certificates.CertificateSigningRequest)
			if ok && concerns(csr) {
				w.requests.Add(task{taskRequest, csr.Name})
			}
		},
		gone: func(any) {},
	}.follow(ctx, wg, s)
	return known
}

// watchNodes notes the Nodes that change.
func (w *worker) watchNodes(ctx context.Context, wg *sync.WaitGroup, s *session) {
	known, controller := w.nodeKind(s.connection.Watches).follow(ctx, wg, s)
	s.nodes = known
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			s.nodesKnown.Store(true)
			w.readiness.noteAll()
			w.tasks.Add(task{kind: taskSubnets})
		}
	})
}

func (w *worker) nodeKind(client kubernetes.Interface) kind {
	nodes := client.CoreV1().Nodes()
	see := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if n, ok := o.(*seenNode); ok {
			w.readiness.note(w.key + "/" + n.name())
		}
	}
	return kind{
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
				error) {
				return nodes.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
				error) {
				return nodes.Watch(ctx, o)
			},
		},
		example: &seenNode{}, most: maxNodes,
		reduce: func(o runtime.Object) runtime.Object { return seeNode(o.(*corev1.Node)) },
		see:    see,
		gone: func(o any) { // one that had a pod subnet is noted with others that go
			see(o)
			w.tasks.AddAfter(task{kind: taskSubnets}, subnetsPause)
		},
	}
}
