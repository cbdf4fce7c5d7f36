package prepare

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout bounds a request.
const requestTimeout = 30 * time.Second

// Cluster is a client of a cluster, with the rights of the caller.
type Cluster struct {
	objects dynamic.Interface
	about   discovery.ServerVersionInterface
	server  string
}

// Open uses a context of a kubeconfig; "" is kubectl's default. Without a kubeconfig it fails: the
// service account of a pod belongs to the provider and not to the caller.
func Open(kubeconfig, name string) (*Cluster, error) {
	from := clientcmd.NewDefaultClientConfigLoadingRules()
	from.ExplicitPath = kubeconfig
	raw, err := from.Load()
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, &clientcmd.ConfigOverrides{},
		from).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	config.Timeout, config.QPS, config.Burst = requestTimeout, 50, 100
	config.WarningHandler = rest.NoWarnings{}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	about, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	return &Cluster{objects: objects, about: about, server: config.Host}, nil
}

// Report lists the changes that a cluster needs, and the checks.
type Report struct {
	Server  string   `json:"server"`
	Version string   `json:"version"`
	Changes []Change `json:"changes"`
	Checks  []Check  `json:"checks,omitempty"`
	// Applied is set once the changes were made.
	Applied bool `json:"applied"`
}

// Missing returns the number of checks that have found something missing.
func (r Report) Missing() (n int) {
	for _, c := range r.Checks {
		if c.Status == Missing {
			n++
		}
	}
	return n
}

// Pending returns the number of changes that have yet to be made.
func (r Report) Pending() (n int) {
	for _, c := range r.Changes {
		if !r.Applied && c.changes() {
			n++
		}
	}
	return n
}

// Plan returns the changes that bring a cluster to the state in options, and checks of what else it
// needs. It changes nothing.
func (c *Cluster) Plan(ctx context.Context, o Options, force bool) (Report, error) {
	r := Report{Server: c.server}
	if err := o.Check(); err != nil {
		return r, err
	}
	f, err := c.facts(ctx, o.Server)
	if err != nil {
		return r, err
	}
	r.Server, r.Version = f.server, f.version.String()
	services := f.services(o.KubeProxy)
	desired, err := o.desired(f, services.apply)
	if err != nil {
		return r, err
	}
	r.Changes, err = c.plan(ctx, desired, force)
	r.Checks = checks(f, o, services)
	return r, err
}

// proxyPatience bounds the wait for kube-proxy on nodes that have already joined; proxyPause is the
// poll interval.
const (
	proxyPatience = time.Minute
	proxyPause    = 2 * time.Second
)

// Await waits until the applied kube-proxy is ready on the flex nodes that have already joined, and
// updates the checks.
func (c *Cluster) Await(ctx context.Context, r *Report, o Options) error {
	if !slices.ContainsFunc(r.Changes, func(c Change) bool {
		return c.Name == ourProxy && (c.Action == Create || c.Action == Update)
	}) {
		return nil
	}
	until := time.Now().Add(proxyPatience)
	for {
		f, err := c.facts(ctx, o.Server)
		if err != nil {
			return err
		}
		r.Checks = checks(f, o, f.services(o.KubeProxy))
		if f.notReady() == "" || time.Now().After(until) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(proxyPause):
		}
	}
}

// PlanRemoval returns the changes that remove everything that was added here. It changes nothing.
func (c *Cluster) PlanRemoval(ctx context.Context) (r Report, err error) {
	v, err := c.version()
	if err != nil {
		return r, err
	}
	r = Report{Server: c.server, Version: v.String()}
	r.Changes, err = c.plan(ctx, nil, false)
	return r, err
}

// facts holds the objects of a cluster that decisions and checks need.
type facts struct {
	server     string
	version    *version.Version
	daemonSets []appsv1.DaemonSet
	nodes      []corev1.Node
	dns        *corev1.Service
	endpoints  []discoveryv1.EndpointSlice
	cilium     *corev1.ConfigMap
	tunnel     *appsv1.Deployment
}

func (c *Cluster) version() (*version.Version, error) {
	info, err := c.about.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("cannot ask the cluster for its version: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's version %q: %w", info.GitVersion, err)
	}
	return v, nil
}

// facts reads the facts of a cluster. server is its address for machines, if that differs.
func (c *Cluster) facts(ctx context.Context, server string) (f facts, err error) {
	if f.version, err = c.version(); err != nil {
		return f, err
	}
	if f.server = server; server == "" {
		f.server = c.server
	}
	if f.server, err = address(f.server); err != nil {
		return f, err
	}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	core := schema.GroupVersion{Version: "v1"}
	found := schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}
	if f.daemonSets, err = list[appsv1.DaemonSet](ctx, c, apps.WithResource("daemonsets"), "",
		""); err != nil {
		return f, err
	}
	if f.nodes, err = list[corev1.Node](ctx, c, core.WithResource("nodes"), "", ""); err != nil {
		return f, err
	}
	if f.endpoints, err = list[discoveryv1.EndpointSlice](ctx, c,
		found.WithResource("endpointslices"), system, dnsSlices); err != nil {
		return f, err
	}
	if f.dns, err = get[corev1.Service](ctx, c, core.WithResource("services"),
		"kube-dns"); err != nil {
		return f, err
	}
	if f.cilium, err = get[corev1.ConfigMap](ctx, c, core.WithResource("configmaps"),
		"cilium-config"); err != nil {
		return f, err
	}
	f.tunnel, err = get[appsv1.Deployment](ctx, c, apps.WithResource("deployments"),
		"konnectivity-agent")
	return f, err
}

// system is the namespace of the cluster's own programs, dnsSlices the label of its DNS's endpoint
// slices.
const (
	system    = "kube-system"
	dnsSlices = "kubernetes.io/service-name=kube-dns"
)

// list returns the objects of a namespace, or of all namespaces.
func list[T any](
	ctx context.Context, c *Cluster, from schema.GroupVersionResource, namespace, selector string,
) ([]T, error) {
	found, err := c.objects.Resource(from).Namespace(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", from.Resource, err)
	}
	all := make([]T, len(found.Items))
	for i, item := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object,
			&all[i]); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", from.Resource, err)
		}
	}
	return all, nil
}

// get returns an object of the namespace kube-system; nil without an error if it does not exist.
func get[T any](
	ctx context.Context, c *Cluster, from schema.GroupVersionResource, name string,
) (*T, error) {
	found, err := c.objects.Resource(from).Namespace(system).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %s: %w", from.Resource, name, err)
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
		return nil, fmt.Errorf("cannot read %s %s: %w", from.Resource, name, err)
	}
	return into, nil
}
