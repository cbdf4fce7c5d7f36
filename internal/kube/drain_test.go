package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cluster is the part of an API server that a drain speaks to.
type cluster struct {
	mu   sync.Mutex
	pods []corev1.Pod
	// refusals are evictions that a disruption budget still refuses; below 0 it refuses all.
	refusals int
	// refuse answers an eviction in the place of the budget, unless it is nil.
	refuse func(pod string, w http.ResponseWriter) (answered bool)
	// onList is called before the n-th list of the pods is answered, counted from 1; lost are the
	// lists that fail with a status.
	onList func(n int)
	lost   map[int]int
	lists  int
	// versions are the resource versions of the lists, dryRuns the pods of evictions without effect.
	versions, dryRuns []string
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/")
	name, eviction := strings.CutSuffix(path, "/eviction")
	if !eviction {
		c.list(w, r)
		return
	}
	dry := r.URL.Query().Get("dryRun") == metav1.DryRunAll
	if dry {
		c.dryRuns = append(c.dryRuns, name)
	}
	switch {
	case c.refuse != nil && c.refuse(name, w):
	case c.refusals != 0:
		c.refusals--
		overBudget(w)
	case !dry:
		c.pods = slices.DeleteFunc(c.pods, func(p corev1.Pod) bool { return p.Name == name })
		fallthrough
	default:
		answer(w, metav1.Status{Status: metav1.StatusSuccess})
	}
}

func (c *cluster) list(w http.ResponseWriter, r *http.Request) {
	c.lists++
	c.versions = append(c.versions, r.URL.Query().Get("resourceVersion"))
	if c.onList != nil {
		c.onList(c.lists)
	}
	if code := c.lost[c.lists]; code != 0 {
		refuse(w, code, metav1.StatusReasonUnknown, "not now")
		return
	}
	answer(w, corev1.PodList{Items: c.pods})
}

// overBudget answers as the API server does to an eviction that a budget does not allow
// (kubernetes/pkg/registry/core/pod/storage/eviction.go).
func overBudget(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusTooManyRequests)
	answer(w, metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests,
		Reason:  metav1.StatusReasonTooManyRequests,
		Message: "Cannot evict pod as it would violate the pod's disruption budget.",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type:    policyv1.DisruptionBudgetCause,
			Message: "The disruption budget web-pdb needs 2 healthy pods and has 2 currently",
		}}},
	})
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
			name:   "an unmanaged pod blocks, and nothing is evicted",
			pods:   []corev1.Pod{web, pod("lone", "")},
			remain: []string{"web", "lone"}, err: "default/lone has no controller",
		},
		{
			name: "an unmanaged pod remains, and others go",
			pods: []corev1.Pod{web, pod("lone", "")}, o: DrainOptions{Partial: true},
			remain: []string{"lone"}, err: "default/lone has no controller",
		},
		{
			name: "an unmanaged pod, by force", pods: []corev1.Pod{pod("lone", "")},
			o: DrainOptions{Force: true},
		},
		{name: "an unmanaged pod that has ended", pods: []corev1.Pod{pod("job", "", done)}},
		{
			name: "data in an emptyDir is in the way", pods: []corev1.Pod{cache},
			remain: []string{"cache"}, err: "default/cache has data in an emptyDir volume",
		},
		{
			name: "data in an emptyDir, given up", pods: []corev1.Pod{cache},
			o: DrainOptions{DeleteEmptyDir: true},
		},
		{name: "a budget that gives way", pods: []corev1.Pod{web}, refusals: 3},
		{
			name: "a budget that does not", pods: []corev1.Pod{web}, refusals: -1,
			remain: []string{"web"},
			err: "default/web is protected by a PodDisruptionBudget: The disruption budget web-pdb " +
				"needs 2",
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

// A webhook that never answers, and many pods, take minutes for one round: each eviction that is
// asked for is progress.
func TestDrainTellsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, longest := time.Now(), time.Duration(0)
		c := &cluster{refuse: func(_ string, w http.ResponseWriter) bool {
			time.Sleep(10 * time.Second) // the default timeout of a webhook
			refuse(w, 500, metav1.StatusReasonInternalError, "failed calling webhook")
			return true
		}}
		for n := range 25 {
			c.pods = append(c.pods, pod(fmt.Sprint("web-", n), "ReplicaSet"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		err := inMemory(t, c.ServeHTTP).Drain(ctx, "edge-1", DrainOptions{Progress: func() {
			longest = max(longest, time.Since(last))
			last = time.Now()
		}})
		time.Sleep(time.Minute) // the last answer comes after the deadline
		if err == nil || longest > requestTimeout {
			t.Errorf("silent for %s; Drain: %v", longest, err)
		}
	})
}

// A list that fails is one more round; a refusal ends the drain.
func TestDrainListFails(t *testing.T) {
	for code, want := range map[int]bool{500: true, 503: true, 429: true, 403: false, 401: false} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{
				pods: []corev1.Pod{pod("web", "ReplicaSet")}, refusals: 2, lost: map[int]int{1: code, 3: code},
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := inMemory(t, c.ServeHTTP).Drain(ctx, "edge-1", DrainOptions{})
			if (err == nil) != want || (len(c.pods) == 0) != want {
				t.Errorf("Drain, after lists that fail with %d: %v, %d pods are left", code, err, len(c.pods))
			}
		})
	}
}

// A drain that never gets a list ends with its deadline, and with what blocked it before.
func TestDrainListsNeverAnswered(t *testing.T) {
	lost := map[int]int{}
	for n := range 100 {
		lost[n] = 500
	}
	for _, seen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{pods: []corev1.Pod{pod("web", "ReplicaSet")}, refusals: -1, lost: lost}
			if seen {
				c.lists = -2
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := inMemory(t, c.ServeHTTP).Drain(ctx, "edge-1", DrainOptions{})
			_, blocked := errors.AsType[*DrainError](err)
			if err == nil || blocked != seen || c.lists < 10 {
				t.Errorf("Drain: %v, after %d lists", err, c.lists)
			}
		})
	}
}

// What blocks a drain is named: each pod, why, and the budget that the API server names.
func TestDrainError(t *testing.T) {
	ending := pod("slow", "ReplicaSet", func(p *corev1.Pod) {
		p.DeletionTimestamp = new(metav1.Now())
	})
	c := &cluster{
		pods: []corev1.Pod{pod("web", "ReplicaSet"), ending, pod("ill", "ReplicaSet")}, refusals: -1,
		refuse: func(pod string, w http.ResponseWriter) bool {
			if pod == "ill" {
				refuse(w, 403, metav1.StatusReasonForbidden, "not you")
			}
			return pod == "ill"
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c.onList = func(n int) {
		if n > 2 {
			cancel()
		}
	}
	client := c.client(t)
	var seen []string
	collect := func(err error) {
		t.Helper()
		blocked, ok := errors.AsType[*DrainError](err)
		if !ok {
			t.Fatalf("the error is %v", err)
		}
		for _, b := range blocked.Pods {
			seen = append(seen, b.Pod+" "+b.Message)
		}
	}
	collect(client.Drain(ctx, "edge-1", DrainOptions{Retry: time.Millisecond}))
	c.mu.Lock() // the list that was cut off is perhaps still answered
	c.onList, c.pods = nil, []corev1.Pod{pod("lone", ""), pod("cache", "ReplicaSet", emptyDir)}
	c.mu.Unlock()
	collect(client.Drain(t.Context(), "edge-1", DrainOptions{}))
	want := []string{
		"default/web is protected by a PodDisruptionBudget: The disruption budget web-pdb ",
		"default/slow is terminating", "default/ill not you", "default/lone has no controller",
		"default/cache has data in an emptyDir volume",
	}
	if !slices.EqualFunc(seen, want, strings.HasPrefix) {
		t.Errorf("blocked are %q, want %q", seen, want)
	}
}

// CanDrain asks about each pod that would go and evicts none. What blocks for certain comes before
// what could not be asked.
func TestCanDrain(t *testing.T) {
	web, other := pod("web", "ReplicaSet"), pod("other", "ReplicaSet")
	dryRunRefused := func(_ string, w http.ResponseWriter) bool {
		refuse(w, 400, metav1.StatusReasonBadRequest, `admission webhook "x" does not support dry run`)
		return true
	}
	for name, tt := range map[string]struct {
		pods     []corev1.Pod
		refusals int
		refuse   func(string, http.ResponseWriter) bool
		lost     map[int]int
		asked    []string
		blocked  bool // a *DrainError
		unasked  bool // ErrCannotAsk
		err      bool
	}{
		"nothing blocks": {
			pods: []corev1.Pod{web, pod("proxy", "DaemonSet"), other}, asked: []string{"web", "other"},
		},
		"a budget":         {pods: []corev1.Pod{web}, refusals: 1, asked: []string{"web"}, blocked: true},
		"an unmanaged pod": {pods: []corev1.Pod{web, pod("lone", "")}, blocked: true},
		"a webhook that refuses dry runs": {
			pods: []corev1.Pod{web}, refuse: dryRunRefused, asked: []string{"web"}, unasked: true,
		},
		"a budget and such a webhook": {
			pods: []corev1.Pod{web, other}, refusals: 1, asked: []string{"web", "other"}, blocked: true,
			refuse: func(pod string, w http.ResponseWriter) bool {
				return pod == "web" && dryRunRefused(pod, w)
			},
		},
		"an API server that is overloaded": {
			pods: []corev1.Pod{web}, asked: []string{"web"}, err: true,
			refuse: func(_ string, w http.ResponseWriter) bool {
				refuse(w, 429, metav1.StatusReasonTooManyRequests, "too many requests")
				return true
			},
		},
		"a list that fails": {pods: []corev1.Pod{web}, lost: map[int]int{1: 500}, err: true},
	} {
		c := &cluster{pods: tt.pods, refusals: tt.refusals, refuse: tt.refuse, lost: tt.lost}
		err := c.client(t).CanDrain(t.Context(), "edge-1", DrainOptions{})
		_, blocked := errors.AsType[*DrainError](err)
		if blocked != tt.blocked || errors.Is(err, ErrCannotAsk) != tt.unasked ||
			(err != nil) != (tt.blocked || tt.unasked || tt.err) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(c.dryRuns, tt.asked) || len(c.pods) != len(tt.pods) {
			t.Errorf("%s: dry runs of %v, %d pods are left", name, c.dryRuns, len(c.pods))
		}
	}
}

// Health reads pods from the API server's cache, a drain reads them consistently.
func TestPodsAreListed(t *testing.T) {
	c := &cluster{}
	client := c.client(t)
	_, err := client.PodsOn(t.Context(), "edge-1")
	err = errors.Join(err, client.Drain(t.Context(), "edge-1", DrainOptions{}))
	if err != nil || !slices.Equal(c.versions, []string{"0", ""}) {
		t.Errorf("listed with the resource versions %q, %v", c.versions, err)
	}
}

// A drain tells after each round which pods are left, and why: the last one is terminating then.
func TestDrainTells(t *testing.T) {
	c := &cluster{pods: []corev1.Pod{pod("web", "ReplicaSet")}, refusals: 2}
	var told []string
	err := c.client(t).Drain(t.Context(), "edge-1", DrainOptions{
		Retry:   time.Millisecond,
		Blocked: func(e *DrainError) { told = append(told, e.Error()) },
	})
	if err != nil || len(told) != 3 || !strings.Contains(told[0], "default/web is protected") ||
		!strings.Contains(told[0], "web-pdb") {
		t.Errorf("told %q, the error is %v", told, err)
	}
}

// A drain that leaves some pods alone still waits for the others, and retries their budgets.
func TestPartialDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: []corev1.Pod{pod("web", "ReplicaSet"), pod("lone", "")}, refusals: 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := inMemory(t, c.ServeHTTP).Drain(ctx, "edge-1", DrainOptions{Partial: true})
		_, kept := errors.AsType[*DrainError](err)
		if !kept || len(c.pods) != 1 || c.pods[0].Name != "lone" {
			t.Errorf("%v; %d pods are left", err, len(c.pods))
		}
	})
}
