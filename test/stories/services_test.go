package stories

import (
	"context"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// A node without a proxy for Services joins; bootstrap warns, and status reports what is missing,
// until it is there. The node is healthy nevertheless: its pods may need none.
func TestServicesMissing(t *testing.T) {
	w := newWorld(t)
	w.cluster.noServices = true
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if log := w.log.String(); !strings.Contains(log, "neither kube-proxy") {
		t.Errorf("bootstrap does not warn:\n%s", log)
	}
	c := w.condition("ServicesReachable")
	if c.Status != health.False || c.Reason != "ProxyMissing" {
		t.Errorf("the condition is %+v", c)
	}
	if !w.status().Healthy() {
		t.Error("the node is not healthy")
	}
	unserved := func() (conditions []health.Condition) {
		err := w.run(func(ctx context.Context, a *change.Agent) (err error) {
			conditions, err = change.Unserved(ctx, a)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return conditions
	}
	if got := unserved(); len(got) != 1 || got[0].Reason != "ProxyMissing" {
		t.Errorf("the join ends with %+v", got)
	}
	w.cluster.set(func() { w.cluster.noServices = false })
	if got := unserved(); len(got) != 0 {
		t.Errorf("where they work it ends with %+v", got)
	}
	if c := w.condition("ServicesReachable"); c.Status != health.True {
		t.Errorf("the condition is %+v", c)
	}
}

// The proxy for Services comes once the Node is Ready: a join waits for it, and warns of nothing.
// If it is there, the join checks once, like every change.
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
		w.log.String(), "neither kube-proxy") {
		t.Errorf("a change where they do not: %v\n%s", err, w.log.String())
	}
}

// The address of the DNS service comes from Azure, else from the cluster. Without either a join is
// refused before any change, with the setting to add; the address is never guessed.
func TestDNSAddress(t *testing.T) {
	const azures, clusters, owners = "10.0.0.99", "10.0.0.10", "10.0.0.66"
	told := func(w *world) string {
		_, rest, _ := strings.Cut(w.read("/var/lib/kubelet/config.yaml"), `"clusterDNS": [`)
		address, _, _ := strings.Cut(rest, "]")
		return strings.Trim(strings.TrimSpace(address), `"`)
	}
	for want, azure := range map[string]string{azures: azures, clusters: ""} {
		w, sim := azureWorld(t)
		sim.AddCluster(azuresim.Cluster{ID: clusterID, Server: w.cluster.URL, CA: w.cluster.pki(),
			Entra: true, AzureRBAC: true, DNSServiceIP: azure})
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if is := told(w); is != want {
			t.Errorf("Azure says %q: pods ask %s", azure, is)
		}
	}
	w := newWorld(t)
	before, touches := w.tree(), w.touched()
	w.cluster.set(func() { w.cluster.secretive = true })
	_, err := w.bootstrap()
	if err == nil || !strings.Contains(err.Error(), "set node.kubelet.dnsServiceIP") ||
		!strings.Contains(err.Error(), "kube-system/kube-dns") {
		t.Errorf("the error is %v", err)
	}
	w.same(before)
	if w.touched() != touches {
		t.Error("the machine was touched")
	}
	w.config = w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["kubelet"].(map[string]any)["dnsServiceIP"] = owners
	})
	if _, err := w.bootstrap(); err != nil || told(w) != owners {
		t.Errorf("pods ask %s: %v", told(w), err)
	}
	w.config = w.configuration(func(c map[string]any) { c["node"].(map[string]any)["maxPods"] = 42 })
	if _, err := w.bootstrap(); err != nil || told(w) != owners {
		t.Errorf("the node has joined, and pods ask %s: %v", told(w), err)
	}
}
