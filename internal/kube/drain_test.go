package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cluster is the part of an API server that a drain speaks to.
type cluster struct {
	mu   sync.Mutex
	pods []corev1.Pod
	// refusals are evictions that a disruption budget still refuses; below 0 it refuses all.
	refusals int
	// onList is called before the n-th list of the pods is answered, counted from 1.
	onList func(n int)
	lists  int
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch name, eviction := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"), "/eviction"); {
	case eviction && c.refusals != 0:
		c.refusals--
		w.WriteHeader(http.StatusTooManyRequests)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonTooManyRequests, Code: 429, Message: "needs 2 healthy pods"})
	case eviction:
		c.pods = slices.DeleteFunc(c.pods, func(p corev1.Pod) bool { return p.Name == name })
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	default:
		c.lists++
		if c.onList != nil {
			c.onList(c.lists)
		}
		json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: c.pods})
	}
}

func (c *cluster) client(t *testing.T) *Client {
	t.Helper()
	server, ca := api(t, c.ServeHTTP)
	client, err := FromToken(server.URL, ca, secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func pod(name, ownerKind string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	if ownerKind != "" {
		controller := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: ownerKind, Name: "owner", Controller: &controller}}
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func emptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
}

func done(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func TestDrain(t *testing.T) {
	tests := []struct {
		name     string
		pods     []corev1.Pod
		refusals int
		o        DrainOptions
		stay     []string // the pods that remain
		err      string   // part of the error, "" for none
	}{
		{name: "nothing there"},
		{name: "pods of controllers go", pods: []corev1.Pod{pod("web", "ReplicaSet"), pod("db", "StatefulSet")}},
		{name: "daemons and static pods stay", pods: []corev1.Pod{pod("proxy", "DaemonSet"), pod("etcd", "Node", static), pod("web", "ReplicaSet")}, stay: []string{"proxy", "etcd"}},
		{name: "a pod of nobody is in the way", pods: []corev1.Pod{pod("lone", "")}, stay: []string{"lone"}, err: "default/lone has no controller"},
		{name: "a pod of nobody, by force", pods: []corev1.Pod{pod("lone", "")}, o: DrainOptions{Force: true}},
		{name: "a pod of nobody that has ended", pods: []corev1.Pod{pod("job", "", done)}},
		{name: "data in an emptyDir is in the way", pods: []corev1.Pod{pod("cache", "ReplicaSet", emptyDir)}, stay: []string{"cache"}, err: "default/cache keeps data in an emptyDir"},
		{name: "data in an emptyDir, given up", pods: []corev1.Pod{pod("cache", "ReplicaSet", emptyDir)}, o: DrainOptions{DeleteEmptyDir: true}},
		{name: "a budget that gives way", pods: []corev1.Pod{pod("web", "ReplicaSet")}, refusals: 3},
		{name: "a budget that does not", pods: []corev1.Pod{pod("web", "ReplicaSet")}, refusals: -1, stay: []string{"web"}, err: "default/web a PodDisruptionBudget does not let it go now: needs 2 healthy pods"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &cluster{pods: tt.pods, refusals: tt.refusals}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if tt.refusals < 0 {
				c.onList = func(n int) {
					if n > 3 {
						cancel()
					}
				}
			}
			tt.o.Retry = time.Millisecond
			err := c.client(t).Drain(ctx, "edge-1", tt.o)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Drain: %v, want %q", err, tt.err)
			}
			var stay []string
			for _, p := range c.pods {
				stay = append(stay, p.Name)
			}
			if !slices.Equal(stay, tt.stay) {
				t.Errorf("pods left: %v, want %v", stay, tt.stay)
			}
		})
	}
}
