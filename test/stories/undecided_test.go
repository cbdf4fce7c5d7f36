package stories

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A failing control plane does not decide about a change: it is not rejected, stays under way, and
// is finished when the cluster is healthy.
func TestChangeOnAnIllCluster(t *testing.T) {
	t.Parallel()
	for name, ill := range map[string]struct {
		begin func(w *world)
		end   func(w *world)
	}{
		"it answers little but /version": {
			func(w *world) { w.fails(http.MethodGet, "/api") }, (*world).works},
		"it is overloaded": {func(w *world) {
			w.cluster.set(func() {
				w.cluster.ill = func(r *http.Request) int {
					if r.URL.Path == "/version" {
						return 0
					}
					return http.StatusTooManyRequests
				}
			})
		}, (*world).works},
		"it cannot list pods": {
			func(w *world) { w.fails(http.MethodGet, "/api/v1/pods") }, (*world).works},
		"it cannot write": {func(w *world) {
			w.fails(http.MethodPatch, "/api/v1/nodes/")
			w.cluster.set(func() { w.cluster.lapsed = true })
		}, func(w *world) {
			w.works()
			w.cluster.set(func() { w.cluster.lapsed = false })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.illWhenChanged(func(w *world) func() { ill.begin(w); return func() {} })
			w.config = w.configuration(nodeSetting("maxPods", 42))
			w.config.Agent.ReadyTimeout = "1500ms"
			_, err := w.bootstrap()
			if !errors.Is(err, transition.ErrUndecided) {
				t.Errorf("the error is %v; want that it cannot be told", err)
			}
			if list := w.rejected(); len(list) > 0 {
				t.Errorf("rejected: %+v", list)
			}
			ill.end(w)
			if _, err := w.bootstrap(); err != nil {
				t.Errorf("on a cluster that is well: %v", err)
			}
			if n := w.cluster.node1(); n.Status.Capacity.Pods().Value() != 42 {
				t.Errorf("the Node has %s pods", n.Status.Capacity.Pods())
			}
		})
	}
}

// A lease that is not renewed while the cluster accepts writes is the change's fault.
func TestLeaseExpiresOnAClusterThatWrites(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.illWhenChanged(func(w *world) func() {
		w.cluster.set(func() { w.cluster.lapsed = true })
		return func() { w.cluster.set(func() { w.cluster.lapsed = false }) }
	})
	w.config = w.configuration(nodeSetting("maxPods", 42))
	w.config.Agent.ReadyTimeout = "1500ms"
	if _, err := w.bootstrap(); !rolledBack(err) || !strings.Contains(err.Error(), "lease") {
		t.Errorf("the error is %v", err)
	}
}
