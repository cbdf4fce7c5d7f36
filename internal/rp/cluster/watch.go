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

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// listTimeout limits the time of all pages of a list.
	listTimeout = 6 * requestTimeout
	// maxNodes and maxRequests are the budget of a registration: the objects held of its cluster,
	// requests for each signer. Nothing else in memory grows with a cluster.
	maxNodes, maxRequests = 20_000, 10_000
	// maxVersion limits a resourceVersion, maxContinue the continue token of a list.
	maxVersion, maxContinue = 64, 4 << 10
)

// lists limits concurrent lists of all clusters: each holds a page in memory until that is reduced,
// and a replica that takes over clusters lists them all. A list that takes longer than listPlace
// continues without its place, so that a few slow clusters do not hold all of them.
var lists = make(chan struct{}, 8)

const listPlace = requestTimeout / 2

// kind watches the objects of one kind of a cluster.
type kind struct {
	*cache.ListWatch
	session *session
	example runtime.Object // a reduced object
	budget  int
	// reduce returns the part of an object that is held.
	reduce func(runtime.Object) runtime.Object
	// see is called with each object that changes, gone with each that is deleted.
	see, gone func(any)
	indexers  cache.Indexers
}

// IsWatchListSemanticsUnSupported makes the reflector list in pages, which have a size limit.
func (k kind) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWithContext. An answer above a limit ends the session.
func (k kind) ListWithContext(ctx context.Context, o metav1.ListOptions) (
	list runtime.Object, err error,
) {
	defer func() {
		if errors.Is(err, errHarm) || errors.Is(err, store.ErrCrash) {
			k.session.fail(err)
		}
	}()
	defer store.Caught(&err)
	select {
	case lists <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave := sync.OnceFunc(func() { <-lists })
	defer leave()
	defer time.AfterFunc(listPlace, leave).Stop()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return k.all(ctx, o)
}

// all reads the present list in pages.
func (k kind) all(ctx context.Context, o metav1.ListOptions) (*internalversion.List, error) {
	all := &internalversion.List{}
	o.Limit, o.ResourceVersion, o.ResourceVersionMatch = pageItems, "", ""
	for range 2 + 2*k.budget/pageItems {
		page, err := k.page(ctx, o)
		if err != nil {
			return nil, err
		}
		items, _ := meta.ExtractList(page) // it is a list
		for _, item := range items {
			if kept, ok := k.keep(item); ok {
				all.Items = append(all.Items, kept)
			}
		}
		m, _ := meta.ListAccessor(page)
		all.ResourceVersion, o.Continue = m.GetResourceVersion(), m.GetContinue()
		switch {
		case len(all.Items) > k.budget || len(all.ResourceVersion) > maxVersion ||
			len(o.Continue) > maxContinue:
			return nil, errTooMany
		case o.Continue == "":
			return all, nil
		}
	}
	return nil, errTooMany
}

func (k kind) page(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
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
	reduced := make(chan watch.Event)
	w := watch.NewProxyWatcher(reduced)
	go func() { // watch.Filter blocks forever, and holds the session, if its reader stops
		defer close(reduced)
		defer events.Stop()
		for {
			select {
			case e, ok := <-events.ResultChan():
				if !ok {
					return
				}
				if e.Type != watch.Error {
					if e.Object, ok = k.keep(e.Object); !ok {
						continue
					}
				}
				select {
				case reduced <- e:
				case <-w.StopChan():
					return
				}
			case <-w.StopChan():
				return
			}
		}
	}()
	return w, nil
}

// keep reduces an object if Kubernetes could store its name and version. Bookmarks have a version
// and no name.
func (k kind) keep(o runtime.Object) (kept runtime.Object, ok bool) {
	defer k.session.recovered()
	m, err := meta.Accessor(o)
	if err != nil || m.GetName() != "" && !isName(m.GetName()) ||
		len(m.GetResourceVersion()) > maxVersion {
		return nil, false
	}
	return k.reduce(o), true
}

// errTooMany is the error for a cluster with more objects of a kind than its budget.
var errTooMany = fmt.Errorf("%w: it has too many Nodes or certificate requests", errHarm)

// follow watches a kind during a session. It ends the session if the budget is exceeded.
func (k kind) follow(ctx context.Context, s *session) (cache.Indexer, cache.Controller) {
	k.session = s
	known := 0 // handlers are called one after the other
	objects, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: k,
		Indexers:      k.indexers,
		ObjectType:    k.example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				defer s.recovered()
				if known++; known > k.budget {
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
	s.work.Go(func() { controller.RunWithContext(ctx) })
	return objects.(cache.Indexer), controller
}

// listWatch lists and watches the objects that match a field selector, with a client of client-go.
func listWatch[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, selector string) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(c context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return client.List(c, o)
		},
		WatchFuncWithContext: func(c context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return client.Watch(c, o)
		},
	}
}

// watchRequests queues the certificate requests of kubelets to a signer, and returns the known
// ones.
func (w *worker) watchRequests(ctx context.Context, s *session, signer string) cache.Indexer {
	requests := s.Client.CertificatesV1().CertificateSigningRequests()
	known, _ := kind{
		example: &certificates.CertificateSigningRequest{}, budget: maxRequests,
		ListWatch: listWatch(requests, fields.OneTermEqualSelector("spec.signerName", signer).String()),
		reduce: func(o runtime.Object) runtime.Object {
			return reduceRequest(o.(*certificates.CertificateSigningRequest))
		},
		see: func(o any) {
			if csr, ok := o.(*certificates.CertificateSigningRequest); ok && concerns(csr) {
				w.requests.Add(task{taskRequest, csr.Name})
			}
		},
		gone: func(any) {},
	}.follow(ctx, s)
	return known
}

func (w *worker) watchNodes(ctx context.Context, s *session) {
	var controller cache.Controller
	s.nodes, controller = w.nodeKind(s.Client).follow(ctx, s)
	s.work.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			s.nodesKnown.Store(true)
			w.Index.EachNode(w.key+"/", func(key string, _ bool) { w.noteReady(key) })
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
			w.noteReady(w.key + "/" + n.name)
		}
	}
	return kind{
		ListWatch: listWatch(nodes, ""),
		example:   &seenNode{}, budget: maxNodes, indexers: cache.Indexers{byAddress: addressesOf},
		reduce: func(o runtime.Object) runtime.Object {
			return seeNode(o.(*corev1.Node), w.Installation)
		},
		see: see,
		gone: func(o any) { // its pod subnet is freed together with others
			see(o)
			w.tasks.AddAfter(task{kind: taskSubnets}, subnetsPause)
		},
	}
}
