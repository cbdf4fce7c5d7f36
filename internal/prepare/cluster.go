package prepare

import (
	"cmp"
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

const requestTimeout = 30 * time.Second // bounds a request

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
	Applied bool     `json:"applied"` // set once the changes were made
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
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	f, err := c.facts(ctx, o.Server)
	if err != nil {
		return Report{}, err
	}
	services := f.services(o.KubeProxy)
	r := Report{Server: f.server, Version: f.version.String(), Checks: checks(f, o, services)}
	r.Changes, err = c.plan(ctx, o.desired(f, services.apply), force)
	return r, err
}

// proxyPatience bounds the wait for kube-proxy on nodes that have already joined; proxyPause is the
// poll interval.
const proxyPatience, proxyPause = time.Minute, 2 * time.Second

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

type facts struct {
	server     string // in the form of address
	version    *version.Version
	daemonSets appsv1.DaemonSetList
	nodes      corev1.NodeList
	dns        *corev1.Service
	endpoints  discoveryv1.EndpointSliceList
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
	if f.server, err = address(cmp.Or(server, c.server)); err != nil {
		return f, err
	}
	apps, core := appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion
	for _, l := range []struct {
		from              schema.GroupVersionResource
		namespace, labels string
		into              any
	}{
		{apps.WithResource("daemonsets"), "", "", &f.daemonSets},
		{core.WithResource("nodes"), "", "", &f.nodes},
		{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), system, dnsSlices, &f.endpoints},
	} {
		found, err := c.objects.Resource(l.from).Namespace(l.namespace).List(ctx,
			metav1.ListOptions{LabelSelector: l.labels})
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), l.into)
		}
		if err != nil {
			return f, fmt.Errorf("cannot list %s: %w", l.from.Resource, err)
		}
	}
	for _, o := range []struct {
		from schema.GroupVersionResource
		name string
		into any // stays nil if the object does not exist
	}{
		{core.WithResource("services"), "kube-dns", &f.dns},
		{core.WithResource("configmaps"), "cilium-config", &f.cilium},
		{apps.WithResource("deployments"), "konnectivity-agent", &f.tunnel},
	} {
		found, err := c.objects.Resource(o.from).Namespace(system).Get(ctx, o.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, o.into)
		}
		if err != nil {
			return f, fmt.Errorf("cannot read %s %s: %w", o.from.Resource, o.name, err)
		}
	}
	return f, nil
}

// system is the namespace of the cluster's own programs, dnsSlices the label of its DNS's endpoint
// slices.
const system, dnsSlices = "kube-system", "kubernetes.io/service-name=kube-dns"
