package kube

import (
	"context"
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
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/")
	switch name, eviction := strings.CutSuffix(path, "/eviction"); {
	case eviction && c.refusals != 0:
		c.refusals--
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"needs 2 healthy pods")
	case eviction:
		c.pods = slices.DeleteFunc(c.pods, func(p corev1.Pod) bool { return p.Name == name })
		answer(w, metav1.Status{Status: metav1.StatusSuccess})
	default:
		c.lists++
		if c.onList != nil {
			c.onList(c.lists)
		}
		answer(w, corev1.PodList{Items: c.pods})
	}
}

func (c *cluster) client(t *testing.T) *Client {
	t.Helper()
	server, ca := api(t, c.ServeHTTP)
	client, err := FromToken(server.URL, ca, secret, Options{})
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
		owner := metav1.OwnerReference{Kind: ownerKind, Name: "owner", Controller: &controller}
		p.OwnerReferences = []metav1.OwnerReference{owner}
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func emptyDir(p *corev1.Pod) {
	scratch := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: scratch}}
}

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
}

func done(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func TestDrain(t *testing.T) {
	web := pod("web", "ReplicaSet")
	cache := pod("cache", "ReplicaSet", emptyDir)
	tests := []struct {
		name     string
		pods     []corev1.Pod
		refusals int
		o        DrainOptions
		remain   []string // the pods that are left
		err      string   // part of the error, "" for none
	}{
		{name: "nothing there"},
		{name: "pods of controllers go", pods: []corev1.Pod{web, pod("db", "StatefulSet")}},
		{
			name:   "daemons and static pods remain",
			pods:   []corev1.Pod{pod("proxy", "DaemonSet"), pod("etcd", "Node", static), web},
			remain: []string{"proxy", "etcd"},
		},
		{
			name: "a pod of nobody is in the way", pods: []corev1.Pod{pod("lone", "")},
			remain: []string{"lone"}, err: "default/lone has no controller",
		},
		{
			name: "a pod of nobody, by force", pods: []corev1.Pod{pod("lone", "")},
			o: DrainOptions{Force: true},
		},
		{name: "a pod of nobody that has ended", pods: []corev1.Pod{pod("job", "", done)}},
		{
			name: "data in an emptyDir is in the way", pods: []corev1.Pod{cache},
			remain: []string{"cache"}, err: "default/cache keeps data in an emptyDir",
		},
		{
			name: "data in an emptyDir, given up", pods: []corev1.Pod{cache},
			o: DrainOptions{DeleteEmptyDir: true},
		},
		{name: "a budget that gives way", pods: []corev1.Pod{web}, refusals: 3},
		{
			name: "a budget that does not", pods: []corev1.Pod{web}, refusals: -1,
			remain: []string{"web"},
			err:    "default/web a PodDisruptionBudget does not let it go now: needs 2 healthy pods",
		},
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
			wanted := tt.err == "" && err == nil ||
				tt.err != "" && err != nil && strings.Contains(err.Error(), tt.err)
			if !wanted {
				t.Errorf("Drain: %v, want %q", err, tt.err)
			}
			var remain []string
			for _, p := range c.pods {
				remain = append(remain, p.Name)
			}
			if !slices.Equal(remain, tt.remain) {
				t.Errorf("pods left: %v, want %v", remain, tt.remain)
			}
		})
	}
}
