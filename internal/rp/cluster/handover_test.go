package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// A credential of a cluster that does not answer ends with its token, also under another owner.
func TestRevokedCredentialEndsAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := registered(t)
		_, stop := w.own(factory)
		pass(time.Second)
		w.token("edge-1")
		key := w.node(factory + "/edge-1").Credential
		c.Down.Store(true)
		pass(5 * time.Minute)
		w.drop("edge-1")
		pass(time.Minute)
		stop()
		pass(time.Minute)
		w.own(factory)
		pass(25 * time.Hour)
		row := must(w.store.Credentials.Get(context.Background(), key))
		if row.Exists() {
			t.Errorf("the credential is left: %+v", row.Value)
		}
	})
}

// The node of a credential that a restore has revoked does not wait for ever.
func TestNodeOfARevokedCredentialIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := registered(t)
		_, stop := w.own(factory)
		pass(time.Second)
		c.Down.Store(true)
		pass(5 * time.Minute)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		pass(time.Minute)
		stop()
		edit(w, w.store.Credentials, w.node(factory+"/edge-1").Credential,
			func(c *store.Credential) { c.State = store.Revoking })
		w.own(factory)
		pass(25 * time.Hour)
		if n := w.node(factory + "/edge-1"); n.State != "" || n.Reason == "" {
			t.Errorf("the node is %q: %q", n.State, n.Reason)
		}
	})
}

// Former facts are kept as long as a revision of a node has them, and no longer while the cluster
// changes; if they have become the present ones meanwhile, they stay.
func TestLayersAreCollected(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		move := func(i int) {
			edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
				c.Version = fmt.Sprint(100 + i)
				c.Properties.ServerURL = fmt.Sprintf("https://c%d.example", i)
			})
			pass(2 * time.Second)
		}
		layers := func() int { return w.rows(w.store.Layers.Key("")) }
		ofDefaults := layers() - 1
		w.token("edge-1")
		pass(time.Second)
		for i := range 20 {
			move(i)
		}
		w.drop("edge-1")
		pass(time.Second)
		for i := range 20 {
			move(20 + i)
		}
		before, did, changes := layers(), w.store.Did, 0
		w.store.Did = func(what string) {
			if did(what); what == "layer collected" && changes < 2 {
				changes++
				move(10 * changes)
			}
		}
		must(0, w.store.CollectLayers(context.Background()))
		w.store.Did = did
		present := must(w.store.Clusters.Get(context.Background(), factory)).Value.Facts
		kept := must(w.store.Layers.Get(context.Background(), present)).Exists()
		if is := layers() - ofDefaults; before < 40 || changes != 2 || !kept || is > 3 {
			t.Errorf("%d layers of facts of %d are left, the present: %t", is, before-ofDefaults, kept)
		}
		w.token("edge-2")
		pass(time.Second)
		move(50)
		must(0, w.store.CollectLayers(context.Background()))
		history := must(w.store.History.Get(context.Background(), factory+"/edge-2")).Value
		all := must(history.All())
		for _, r := range all {
			if row := must(w.store.Layers.Get(context.Background(), r.Facts)); !row.Exists() {
				t.Errorf("the facts of revision %d are gone", r.Version)
			}
		}
		if len(all) < 2 {
			t.Errorf("%d revisions are kept", len(all))
		}
	})
}
