package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Another team registers the first one's API server under its own id: the registration is refused,
// and nothing of the first one's is created, deleted or denied.
func TestAnAPIServerIsRegisteredOnce(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.put(factoryID, "edge-1", flexnode.Desired{})
		pass(time.Second)
		before := c.secrets()
		w.register(harbourID, c)
		w.own(harbour)
		pass(time.Minute)
		got := w.cluster(harbour)
		if got.Properties.ProvisioningState != api.Failed || got.Properties.Reachable ||
			got.Facts != "" || got.Probe.Refused == "" {
			t.Errorf("the second registration: %+v", got)
		}
		w.put(harbourID, "edge-1", flexnode.Desired{})
		pass(20 * time.Minute) // and it searches for orphans twice
		equal(t, "Secrets", strings.Join(c.secrets(), " "), strings.Join(before, " "))
		equal(t, "a machine of the first registration", c.Ask(w.joining("first", "edge-1")), "Approved")
		equal(t, "the state of the first registration", w.cluster(factory).Properties.ProvisioningState,
			"")
		if !strings.Contains(w.audit.String(), "registration refused") {
			t.Error("it is not in the audit log")
		}
		equal(t, "the first registration", w.holds(), serverOf("factory"))
		// When the first one is gone the second one may have it.
		w.markDeletion(false, time.Now())
		pass(30 * time.Second)
		if got := w.cluster(harbour); got.Facts == "" || got.Probe.Refused != "" {
			t.Errorf("after the first one is gone: %+v", got)
		}
		rows, _, err := w.store.APIServers.List(context.Background(), "")
		if err != nil || len(rows) != 1 || rows[0].Value != harbour {
			t.Errorf("it belongs to: %+v, %v", rows, err)
		}
	})
}

// holds returns the API server of the first registration, if it has one.
func (w *world) holds() string {
	c := w.cluster(factory)
	server := must(w.store.APIServers.Get(context.Background(), c.APIServer)).Value
	if server != factory {
		return "none"
	}
	return c.APIServer
}

// serverOf returns the identifier of a fake's API server.
func serverOf(name string) string {
	return newFakeCluster(name).connection().server("uid-of-" + name)
}

// A registration that moves to another API server releases the previous one.
func TestARegistrationMoves(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		w.source.point(factory, newFakeCluster("moved"))
		pass(10 * time.Second)
		equal(t, "it", w.holds(), serverOf("moved"))
		rows, _, err := w.store.APIServers.List(context.Background(), "")
		if err != nil || len(rows) != 1 || rows[0].Key != serverOf("moved") {
			t.Errorf("API servers: %v, %v", rows, err)
		}
	})
}
