// Package kubetest is an API server for tests of the provider's work in clusters.
package kubetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// client-go spaces the errors of a process by their times: simulated time, which begins in 2000,
// would wait for the present.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// Cluster is client-go's own fake of an API server, which can be made unreachable.
type Cluster struct {
	*fake.Clientset
	Name    string
	Down    atomic.Bool
	Version atomic.Pointer[string]
	// Groups holds the groups of tokens by their ids, also after their Secrets were deleted.
	Groups sync.Map
}

// ErrDown is the error of an unreachable API server.
var ErrDown = errors.New("connection refused")

// New returns an API server with a name, and with objects besides kube-dns and kubernetes.
func New(name string, objects ...runtime.Object) *Cluster {
	c := &Cluster{Name: name, Clientset: fake.NewClientset(append(objects,
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: "kube-system"},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.10"},
		},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: "default", UID: types.UID("uid-of-" + name)},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd96::1"}},
		},
	)...)}
	version := "v1.35.4"
	c.Version.Store(&version)
	c.confine()
	c.PrependReactor("*", "*", func(ktesting.Action) (bool, runtime.Object, error) {
		return c.Down.Load(), nil, ErrDown
	})
	return c
}

// confine applies the policy of rbac-provider.yaml to Secrets: the provider can delete only those
// that it created, and a Secret of another type, which it tries only in a dry run, is refused.
func (c *Cluster) confine() {
	c.PrependReactor("create", "secrets", func(a ktesting.Action) (bool, runtime.Object, error) {
		create := a.(ktesting.CreateActionImpl)
		secret := create.GetObject().(*corev1.Secret)
		if len(create.CreateOptions.DryRun) > 0 {
			return true, nil, refused(secret.Name)
		}
		c.Groups.Store(string(secret.Data["token-id"]), string(secret.Data["auth-extra-groups"]))
		return false, nil, nil
	})
	c.PrependReactor("delete", "secrets", func(a ktesting.Action) (bool, runtime.Object, error) {
		remove := a.(ktesting.DeleteActionImpl)
		secret, err := c.Tracker().Get(a.GetResource(), a.GetNamespace(), remove.Name)
		if err == nil && secret.(*corev1.Secret).Data["auth-extra-groups"] == nil {
			return true, nil, refused(remove.Name)
		}
		return len(remove.DeleteOptions.DryRun) > 0, nil, err
	})
}

func refused(name string) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), name, nil)
}

// Serves returns the version that the API server reports.
func (c *Cluster) Serves(context.Context) (string, error) {
	if c.Down.Load() {
		return "", ErrDown
	}
	return *c.Version.Load(), nil
}

// Secrets returns the bootstrap tokens in the cluster, by name.
func (c *Cluster) Secrets() []corev1.Secret {
	list := must(c.Tracker().List(corev1.SchemeGroupVersion.WithResource("secrets"),
		corev1.SchemeGroupVersion.WithKind("Secret"), "kube-system"))
	return slices.SortedFunc(slices.Values(list.(*corev1.SecretList).Items),
		func(a, b corev1.Secret) int { return cmp.Compare(a.Name, b.Name) })
}

// Warm initializes caches that are made once, outside every bubble of synctest.
func Warm() {
	s, ctx := store.New(storetest.NewMemory()), context.Background()
	must(s.Update(ctx, "", nil, func(v *store.View) error {
		return s.History.Put(v, "warm", flexnode.History{})
	}))
	must(s.History.Get(ctx, "warm"))
	New("warm")
}

// Pass lets time pass, and waits for its effects.
func Pass(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// Log writes to the log of a test.
type Log struct{ T testing.TB }

// Write implements io.Writer.
func (l Log) Write(p []byte) (int, error) {
	l.T.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
