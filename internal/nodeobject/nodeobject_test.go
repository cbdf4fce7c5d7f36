package nodeobject

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

const (
	name = "edge-1"
	path = "/api/v1/nodes/" + name
)

// cluster is the part of an API server that keeps one Node.
type cluster struct {
	mu     sync.Mutex
	node   *corev1.Node
	refuse map[string]int // the status that a method is answered with
	asked  map[string]int // requests by method
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = make(map[string]int)
	}
	c.asked[r.Method]++
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	switch code := c.refuse[r.Method]; {
	case code != 0:
		refuse(w, code, metav1.StatusReasonUnknown)
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/nodes" && c.node != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/nodes":
		c.node = new(corev1.Node)
		json.Unmarshal(body, c.node)
		json.NewEncoder(w).Encode(c.node)
	case r.URL.Path != path || c.node == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPatch:
		c.patch(body)
		json.NewEncoder(w).Encode(c.node)
	case r.Method == http.MethodDelete:
		c.node = nil
		json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusSuccess})
	default:
		json.NewEncoder(w).Encode(c.node)
	}
}

// patch merges what a Host patches: labels and unschedulable.
func (c *cluster) patch(body []byte) {
	var p struct {
		Metadata struct{ Labels map[string]*string }
		Spec     map[string]*bool
	}
	json.Unmarshal(body, &p)
	for key, value := range p.Metadata.Labels {
		if value == nil {
			delete(c.node.Labels, key)
		} else {
			c.node.Labels[key] = *value
		}
	}
	if on, ok := p.Spec["unschedulable"]; ok {
		c.node.Spec.Unschedulable = on != nil && *on
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "refused",
	})
}

func (c *cluster) host(t *testing.T) *Host {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := kube.FromToken(server.URL, nil, "token", kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &Host{
		Client: func(context.Context) (*kube.Client, error) { return client, nil }, Node: name,
		Capacity: func(context.Context) (corev1.ResourceList, error) { return capacity, nil },
	}
}

var capacity = corev1.ResourceList{
	corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("2"),
}

func registered() *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": "oslo"}},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24"}, Unschedulable: true,
		},
	}
}

func keys() []state.Key {
	return []state.Key{
		state.Registration{Node: name}.Key(), state.Label{Name: "site"}.Key(),
		state.Label{Name: "example.com/rack"}.Key(), state.Cordon{}.Key(),
	}
}

func observe(t *testing.T, h *Host) []state.Resource {
	t.Helper()
	var seen []state.Resource
	for _, key := range keys() {
		r, err := h.Observe(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if r.Key() != key {
			t.Errorf("observing %s gives %s", key, r.Key())
		}
		seen = append(seen, r)
	}
	return seen
}

func TestObserve(t *testing.T) {
	cidrs := []string{"10.244.1.0/24"}
	there := []state.Resource{
		state.Registration{
			Node: name, Exists: true, PodCIDRs: cidrs, Labels: map[string]string{"site": "oslo"},
		},
		state.Label{Name: "site", Value: "oslo", Set: true},
		state.Label{Name: "example.com/rack"},
		state.Cordon{On: true},
	}
	missing := []state.Resource{
		state.Registration{Node: name}, state.Label{Name: "site"},
		state.Label{Name: "example.com/rack"}, state.Cordon{},
	}
	for _, tt := range []struct {
		name string
		node *corev1.Node
		want []state.Resource
	}{
		{"a Node", registered(), there},
		{"no Node", nil, missing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &cluster{node: tt.node}
			if diff := cmp.Diff(tt.want, observe(t, c.host(t))); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if c.asked[http.MethodGet] != 1 {
				t.Errorf("%d GETs for all keys, want 1", c.asked[http.MethodGet])
			}
		})
	}
}

func TestObserveUnknown(t *testing.T) {
	for _, code := range []int{401, 403, 500, 503} {
		c := &cluster{node: registered(), refuse: map[string]int{http.MethodGet: code}}
		for _, r := range observe(t, c.host(t)) {
			if u, ok := r.(state.Unknown); !ok || u.Why == "" {
				t.Errorf("HTTP %d is observed as %#v, want Unknown", code, r)
			}
		}
	}
	noClient := func(context.Context) (*kube.Client, error) { return nil, errors.New("no pem") }
	for _, r := range observe(t, &Host{Client: noClient, Node: name}) {
		if u, ok := r.(state.Unknown); !ok || u.Why != "no pem" {
			t.Errorf("without a client %#v is observed, want Unknown", r)
		}
	}
}

// A 404 of something that is no API server is not taken for a Node that was deleted.
func TestObserveBare404(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client, err := kube.FromToken(server.URL, nil, "token", kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	h := &Host{Node: name, Client: func(context.Context) (*kube.Client, error) { return client, nil }}
	if r := observe(t, h)[0]; cmp.Equal(r, state.Resource(state.Registration{Node: name})) {
		t.Errorf("a bare 404 is observed as %#v, want Unknown", r)
	}
}

func TestObserveCancelled(t *testing.T) {
	c := &cluster{node: registered()}
	h := c.host(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Observe(ctx, state.Cordon{}.Key()); !errors.Is(err, context.Canceled) {
		t.Errorf("Observe after cancellation: %v", err)
	}
	if _, ok := observe(t, h)[0].(state.Registration); !ok {
		t.Error("what a cancelled pass has not seen is remembered")
	}
}

func TestBadKeys(t *testing.T) {
	h := (&cluster{}).host(t)
	for _, key := range []state.Key{
		"path:/etc", "node:taint:x", "node:label:", "node:cordon:x", "node:registration:other",
	} {
		if _, err := h.Observe(t.Context(), key); err == nil {
			t.Errorf("%s is observed", key)
		}
	}
	if err := h.Set(t.Context(), state.Change{To: state.Sysctl{Name: "vm.x"}}, nil); err == nil {
		t.Error("a sysctl is set on a Node")
	}
}

func set(t *testing.T, h *Host, to state.Resource) {
	t.Helper()
	if err := h.Set(t.Context(), state.Change{To: to}, nil); err != nil {
		t.Fatal(err)
	}
	seen, err := h.Observe(t.Context(), to.Key())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(to, seen); diff != "" {
		t.Errorf("observed after Set (-want +got):\n%s", diff)
	}
}

func TestSet(t *testing.T) {
	h := (&cluster{node: registered()}).host(t)
	set(t, h, state.Label{Name: "example.com/rack", Value: "7", Set: true})
	set(t, h, state.Label{Name: "example.com/rack"})
	set(t, h, state.Cordon{})
	set(t, h, state.Cordon{On: true})
	set(t, h, state.Registration{Node: name})
	set(t, h, state.Registration{Node: name}) // deleted already
	set(t, h, state.Label{Name: "site"})      // gone with the Node
	set(t, h, state.Cordon{})
}

// R1: a Node that was deleted is registered again, with its pod subnet, its taints, the labels that
// a node may give itself, and room for the pods that run.
func TestRegisterAgain(t *testing.T) {
	c := &cluster{}
	h := c.host(t)
	h.Taints = []string{"dedicated=edge:NoSchedule"}
	former := state.Registration{
		Node: name, Exists: true, PodCIDRs: []string{"10.244.7.0/24"},
		Labels: map[string]string{
			"site": "oslo", "kubernetes.io/os": "linux", "kubernetes.azure.com/managed": "false",
			"node.kubernetes.io/instance-type": "edge", "node-role.kubernetes.io/worker": "",
			"node-restriction.kubernetes.io/zone": "1",
		},
	}
	for range 2 { // the second finds it registered by kubelet meanwhile
		if err := h.Set(t.Context(), state.Change{To: former}, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := corev1.NodeSpec{
		PodCIDR: "10.244.7.0/24", PodCIDRs: []string{"10.244.7.0/24"},
		Taints: []corev1.Taint{{Key: "dedicated", Value: "edge", Effect: "NoSchedule"}},
	}
	if diff := cmp.Diff(want, c.node.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	labels := map[string]string{
		"site": "oslo", "kubernetes.io/os": "linux", "kubernetes.azure.com/managed": "false",
		"node.kubernetes.io/instance-type": "edge",
	}
	if diff := cmp.Diff(labels, c.node.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	status := corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}
	if diff := cmp.Diff(status, c.node.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestSetErrors(t *testing.T) {
	c := &cluster{node: registered(), refuse: map[string]int{
		http.MethodPatch: 403, http.MethodPost: 403, http.MethodDelete: 403,
	}}
	h := c.host(t)
	for _, tt := range []struct {
		to   state.Resource
		says string
	}{
		{state.Registration{Node: name}, "kubectl delete node " + name},
		{state.Registration{Node: name, Exists: true}, "cannot register Node " + name},
		{state.Label{Name: "site", Value: "x", Set: true}, "cannot label Node " + name},
		{state.Label{Name: "site"}, "cannot label Node " + name},
		{state.Cordon{On: true}, "cannot cordon Node " + name},
		{state.Cordon{}, "cannot uncordon Node " + name},
	} {
		err := h.Set(t.Context(), state.Change{To: tt.to}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("setting %#v: %v, want %q", tt.to, err, tt.says)
		}
	}
	h.Taints = []string{"nonsense"}
	to := state.Registration{Node: name, Exists: true}
	if err := h.Set(t.Context(), state.Change{To: to}, nil); err == nil {
		t.Error("a taint that cannot be read is no error")
	}
	h.Taints, h.Capacity = nil, func(context.Context) (corev1.ResourceList, error) {
		return nil, errors.New("no disk")
	}
	if err := h.Set(t.Context(), state.Change{To: to}, nil); err == nil {
		t.Error("a capacity that is not known is no error")
	}
	h.Client = func(context.Context) (*kube.Client, error) { return nil, errors.New("no pem") }
	if err := h.Set(t.Context(), state.Change{To: state.Cordon{}}, nil); err == nil {
		t.Error("no client is no error")
	}
}
