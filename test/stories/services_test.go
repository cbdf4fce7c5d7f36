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

// What makes Services work comes when the Node is Ready: a join waits for it, and warns of nothing.
// Where they work it asks once, as a change always does.
func TestServicesComeLate(t *testing.T) {
	w := newWorld(t)
	const late = 6
	w.cluster.refusals = late
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	warns := func() bool { return strings.Contains(w.log.String(), "cannot reach Services") }
	connected := func() (n int) {
		w.cluster.set(func() { n, w.cluster.connections = w.cluster.connections, 0 })
		return n
	}
	if n := connected(); warns() || n != late+2 {
		t.Errorf("%d connections; the log is\n%s", n, w.log.String())
	}
	w.config.Node.MaxPods = 42
	if _, err := w.bootstrap(); err != nil || connected() != 2 || warns() {
		t.Errorf("a change where they work: %v\n%s", err, w.log.String())
	}
	w.cluster.set(func() { w.cluster.refusals = 2 })
	w.config.Node.MaxPods = 43
	if _, err := w.bootstrap(); err != nil || connected() != 2 || !warns() && !strings.Contains(
		w.log.String(), "no kube-proxy") {
		t.Errorf("a change where they do not: %v\n%s", err, w.log.String())
	}
}
