package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificates "k8s.io/api/certificates/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const operation = subscription + "/00000000-0000-0000-0000-00000000000f"

// markDeletion writes that the factory is being deleted, as the handler does.
func (w *world) markDeletion(wipe bool, since time.Time) {
	w.change(func(v *store.View) error {
		row := w.store.Clusters.Row(v, factory).Value
		row.Deletion = &flexnode.Deletion{Operation: operation, Wipe: wipe, Since: since.UTC()}
		err := w.store.Operations.Set(v, operation, flexnode.Operation{
			Target: row.ID, Kind: "deleteCluster", State: "InProgress", Started: since.UTC(),
			Total: w.rows(w.store.Nodes.Key(factory + "/"))})
		return errors.Join(err, w.store.Clusters.Put(v, factory, row))
	})
	synctest.Wait()
}

// fill gives the factory nodes with pod subnets, client secrets, states and credentials; a machine
// joins with one of these that its node does not refer to any more.
func (w *world) fill(c *fakeCluster, nodes int) {
	w.t.Helper()
	w.pool("10.0.0.0/8", 24)
	for i := range nodes {
		name := fmt.Sprintf("edge-%d", i)
		w.put(factoryID, name, flexnode.Desired{NodeConfig: flexnode.NodeConfig{MaxPods: 30}})
		w.change(func(v *store.View) error {
			err := w.store.Status.Put(v, factory+"/"+name, flexnode.Status{
				Report: api.Report{AgentVersion: "1"}})
			return errors.Join(err, w.credentials.KeepSecret(v, factory+"/"+name, "hush", 1))
		})
	}
	pass(time.Second)
	equal(w.t, "a machine", c.Ask(w.joining("joining", "edge-0")), "Approved")
	w.put(factoryID, "edge-0", flexnode.Desired{NodeConfig: flexnode.NodeConfig{MaxPods: 31}})
	pass(time.Second)
	equal(w.t, "Secrets", len(c.secrets()), nodes+1)
}

// checkGone checks that only tombstones of the factory are left.
func (w *world) checkGone(nodes int, wipe bool) {
	w.t.Helper()
	s := w.store
	for what, prefix := range map[string]string{
		"node": s.Nodes.Key(factory), "status": s.Status.Key(factory),
		"history": s.History.Key(factory), "client secret": s.Secrets.Key(factory),
		"bundle": s.Bundles.Key(factory), "credential": s.Credentials.Key(factory),
		"token": s.Tokens.Key(factory), "pod subnet": s.PodCIDRs.Key(factory),
		"cluster": s.Clusters.Key(factory), "API server": s.APIServers.Key(""),
	} {
		equal(w.t, "rows of the kind "+what, w.rows(prefix), 0)
	}
	stones, _, err := s.Tombstones.List(context.Background(), factory+"/")
	if err != nil || len(stones) != nodes {
		w.t.Errorf("%d tombstones of %d nodes: %v", len(stones), nodes, err)
	}
	for _, row := range stones {
		stone, ok, err := row.Value.Of("")
		if err != nil || !ok || stone.Wipe != wipe || stone.UID == "" {
			w.t.Fatalf("the tombstone of %s: %+v, %v", row.Key, stone, err)
		}
	}
	o := must(s.Operations.Get(context.Background(), operation)).Value
	if o.State != api.Succeeded || o.Ended.IsZero() || o.Total != nodes || o.Done != nodes {
		w.t.Errorf("the operation: %+v", o)
	}
}

// The deletion of a registration deletes all its rows, and wipes machines only on request, a tenth
// in each minute: a provider that was down for an hour does not make up for the others. It goes on
// even if the cluster does not answer; tokens in it expire.
func TestARegistrationIsDeleted(t *testing.T) {
	for name, tt := range map[string]struct {
		wipe, down bool
		ago, takes time.Duration
	}{
		"released":             {takes: 30 * time.Second},
		"wiped":                {wipe: true, takes: 9*time.Minute + 30*time.Second},
		"wiped after an hour":  {wipe: true, ago: time.Hour, takes: 9*time.Minute + 30*time.Second},
		"that does not answer": {down: true, takes: 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
				const nodes = 70
				w.fill(c, nodes)
				c.Down.Store(tt.down)
				w.markDeletion(tt.wipe, time.Now().Add(-tt.ago))
				pass(30 * time.Second)
				if tt.wipe {
					equal(t, "nodes left after half a minute", w.rows(w.store.Nodes.Key(factory)), nodes-7)
				}
				pass(tt.takes - 30*time.Second)
				w.checkGone(nodes, tt.wipe)
				if tt.down {
					equal(t, "tokens that are left, in the audit log",
						strings.Count(w.audit.String(), "bootstrap token left"), nodes+1)
				} else {
					equal(t, "Secrets that are left", strings.Join(c.secrets(), " "), "")
				}
			})
		})
	}
}

// An aborted deletion leaves the remaining nodes unchanged.
func TestADeletionIsAborted(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.fill(c, 20)
		w.markDeletion(true, time.Now())
		pass(90 * time.Second)
		edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) { c.Deletion = nil })
		pass(time.Hour)
		equal(t, "nodes of 20 that are left", w.rows(w.store.Nodes.Key(factory)), 16)
	})
}

// The deletion of a cluster that was never reached does not wait for it.
func TestARegistrationThatWasNeverReachedIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), newFakeCluster("factory")
		c.Down.Store(true)
		w.register(factoryID, c)
		w.own(factory)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		pass(time.Second)
		w.markDeletion(true, time.Now())
		pass(10 * time.Second)
		w.checkGone(1, true)
	})
}

// A registration that is made again at once, while the same replica owns it, can be deleted again,
// with all its credentials.
func TestARegistrationIsDeletedTwice(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.fill(c, 2)
		w.markDeletion(false, time.Now())
		pass(10 * time.Second)
		w.checkGone(2, false)
		w.register(factoryID, c)
		pass(time.Minute)
		equal(t, "a machine", c.Ask(csr("later", w.token("edge-1"), "edge-1")), "Approved")
		w.put(factoryID, "edge-1", flexnode.Desired{NodeConfig: flexnode.NodeConfig{MaxPods: 31}})
		pass(time.Second)
		edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
			c.Deletion = &flexnode.Deletion{
				Operation: operation + "2", Since: time.Now().UTC()}
		})
		pass(10 * time.Second)
		if w.cluster(factory).ID != "" || w.rows(w.store.Credentials.Key(factory)) != 0 {
			t.Error("it is still there")
		}
	})
}

// After a kill at any effect the next owner continues; no request is approved in between.
func TestADeletionIsKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a run for each write takes long; make test has it")
	}
	killedAnywhere(t, 10, func(t *testing.T, w *killable, c *fakeCluster) {
		const nodes = 3
		w.policy(flexnode.RolloutPolicy{MaxUnavailable: "100%"}) // all at once
		w.fill(c, nodes)
		w.armed.Store(true)
		w.markDeletion(true, time.Now())
		pass(30 * time.Second)
		if w.n > 0 {
			w.disown(factory)
			c.File(csr("late", "abcdef", "edge-1"))
			w.restart()
			w.own(factory)
			pass(90 * time.Second) // also for the next turn of a wipe
			equal(t, "a request was approved meanwhile",
				c.Answer("late") == string(certificates.CertificateApproved), false)
		}
		w.checkGone(nodes, true)
		equal(t, "Secrets that are left", strings.Join(c.secrets(), " "), "")
	})
}
