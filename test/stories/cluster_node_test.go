package stories

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lease serves the lease, which the running kubelet renews.
func (c *cluster) lease(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	lease := coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"},
	}
	c.mu.Lock()
	seconds, at := int32(40), metav1.NewMicroTime(c.heard())
	c.mu.Unlock()
	if c.running().IsZero() || c.lapses() {
		at = metav1.NewMicroTime(time.Now().Add(-time.Hour))
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &at,
	}
	reply(w, lease)
}

// watch reports deletions.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	c.mu.Lock()
	deletions := c.deletions
	c.mu.Unlock()
	ends, err := time.ParseDuration(r.URL.Query().Get("timeoutSeconds") + "s")
	if err != nil {
		panic(err)
	}
	end := time.NewTimer(ends)
	defer end.Stop()
	select {
	case <-deletions:
		_, _ = io.WriteString(
			w, `{"type":"DELETED","object":{"kind":"Node","apiVersion":"v1"}}`+"\n",
		)
	case <-end.C:
	case <-r.Context().Done():
	}
}

// create registers a node, like the agent does for a deleted one.
func (c *cluster) create(w http.ResponseWriter, r *http.Request) {
	var n corev1.Node
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[n.Name] != nil {
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	c.nodes[n.Name] = &n
	reply(w, n)
}

func (c *cluster) node(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	n, ok := c.nodes[r.PathValue("name")]
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	status := corev1.ConditionFalse
	if c.ready(n.Name) {
		status = corev1.ConditionTrue
	}
	shown := n.DeepCopy()
	shown.Status.Conditions = append(shown.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(c.heard()),
		Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
	})
	reply(w, shown)
}

func (c *cluster) patch(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[r.PathValue("name")]
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	var patch struct {
		Metadata struct{ Labels, Annotations map[string]*string }
		Spec     map[string]any
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if c.unlabelled && len(patch.Metadata.Labels) > 0 {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	if c.uncordons(patch.Spec, w) {
		return
	}
	set := func(all map[string]string, changes map[string]*string) map[string]string {
		if all = maps.Clone(all); all == nil {
			all = map[string]string{}
		}
		for key, value := range changes {
			if delete(all, key); value != nil {
				all[key] = *value
			}
		}
		return all
	}
	n.Labels = set(n.Labels, patch.Metadata.Labels)
	n.Annotations = set(n.Annotations, patch.Metadata.Annotations)
	if cordon, ok := patch.Spec["unschedulable"]; ok {
		n.Spec.Unschedulable = cordon == true // null takes it away
		if n.Spec.Unschedulable {
			c.cordons++
		}
	}
	reply(w, n)
}

func (c *cluster) delete(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	c.remove(r.PathValue("name"))
	reply(
		w,
		metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success",
		},
	)
}

// remove deletes a node and wakes the watches; c.mu is held.
func (c *cluster) remove(name string) {
	delete(c.nodes, name)
	close(c.deletions)
	c.deletions = make(chan struct{})
}

// has reports whether the cluster has a node.
func (c *cluster) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name] != nil
}
