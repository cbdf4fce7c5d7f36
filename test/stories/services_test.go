package stories

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/health"
)

// A node on which nobody makes Services work joins; bootstrap warns, and status says what is
// missing, until somebody does. The node is healthy all the same: its pods may need none.
func TestServicesMissing(t *testing.T) {
	w := newWorld(t)
	w.cluster.noServices = true
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if log := w.log.String(); !strings.Contains(log, "no kube-proxy") {
		t.Errorf("bootstrap does not warn:\n%s", log)
	}
	c := w.condition(health.ServicesReachable)
	if c.Status != health.False || c.Reason != "ProxyMissing" {
		t.Errorf("the condition is %+v", c)
	}
	if !w.status().Healthy() {
		t.Error("the node is not healthy")
	}
	w.cluster.set(func() { w.cluster.noServices = false })
	if c := w.condition(health.ServicesReachable); c.Status != health.True {
		t.Errorf("the condition is %+v", c)
	}
}
