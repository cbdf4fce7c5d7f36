package front

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/rptest"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// fakeCluster does the work of the reconcilers of clusters, except while it is down.
type fakeCluster struct {
	store       *store.Store
	credentials *credential.Service
	clock       *rptest.Clock
	isDown      atomic.Bool
	nodesGone   atomic.Int64 // how many Nodes were deleted
}

func (c *fakeCluster) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		c.store.Clusters.Sync(ctx, "", func(row store.Row[flexnode.Cluster]) {
			if row.Exists() && row.Value.Facts == "" {
				running.Go(func() { c.again(ctx, func() error { return c.probe(ctx, row.Key) }) })
			}
		}, nil, func(error) {})
	})
	running.Go(func() {
		c.store.Credentials.Sync(ctx, "", func(row store.Row[store.Credential]) {
			if row.Exists() {
				running.Go(func() { c.again(ctx, func() error { return c.step(ctx, row.Key) }) })
			}
		}, nil, func(error) {})
	})
	running.Go(func() {
		c.store.Certificates.Sync(ctx, "", func(row store.Row[flexnode.Certificates]) {
			if row.Value.Leaving != "" {
				running.Go(func() { c.again(ctx, func() error { return c.leave(ctx, row.Key) }) })
			}
		}, nil, func(error) {})
	})
	running.Wait()
}

// leave deletes the Node of a machine that leaves, before its agent gets an answer.
func (c *fakeCluster) leave(ctx context.Context, key string) error {
	row, err := c.store.Certificates.Get(ctx, key)
	if err != nil || row.Value.Leaving == "" {
		return err
	}
	c.nodesGone.Add(1)
	_, err = c.store.Update(ctx, "Node deleted", nil, func(v *store.View) error {
		row := c.store.Certificates.Row(v, key)
		row.Value.Leaving = ""
		return c.store.Certificates.Put(v, key, row.Value)
	})
	return err
}

// again retries until do succeeds.
func (c *fakeCluster) again(ctx context.Context, do func() error) {
	for ctx.Err() == nil {
		if !c.isDown.Load() && do() == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// step does the next steps of a credential until it needs no more.
func (c *fakeCluster) step(ctx context.Context, key string) error {
	next, err := c.credentials.Step(ctx, key, c, store.Condition{})
	if err != nil || next.IsZero() {
		return err
	}
	for c.clock.Now().Before(next) {
		if store.Pause(ctx, 5*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.New("its time has come")
}

// probe writes the findings about a cluster, and renders the nodes that wait for it.
func (c *fakeCluster) probe(ctx context.Context, key string) error {
	_, err := c.store.Update(ctx, "probed", nil, func(v *store.View) error {
		row := c.store.Clusters.Row(v, key)
		if !row.Exists() {
			return nil
		}
		layer := flexnode.FactsLayer(flexnode.Facts{
			ServerURL: "https://factory.example:6443", CACertData: testCA, TenantID: tenant,
			DNSServiceIP: "10.96.0.10", Location: row.Value.Location,
		}, row.Value.ID)
		row.Value.SubnetsEpoch = c.store.Epoch(v)
		row.Value.Facts, row.Value.APIServer = layer.ID, "https://factory.example:6443"
		row.Value.Properties.KubernetesVersion, row.Value.Properties.Reachable = "1.35.4", true
		return errors.Join(c.store.Layers.Set(v, layer.ID, layer.Text),
			c.store.Clusters.Put(v, key, row.Value))
	})
	if err != nil {
		return err
	}
	rows, _, err := c.store.Nodes.List(ctx, key+"/")
	for _, row := range rows {
		err = errors.Join(err, c.render(ctx, row.Key))
	}
	return err
}

// render renders a node with its cluster's facts.
func (c *fakeCluster) render(ctx context.Context, key string) error {
	_, err := c.store.Update(ctx, "rendered", nil, func(v *store.View) error {
		node := c.store.Nodes.Row(v, key)
		if node.Value.Revision != 0 || !node.Exists() { // it was made after the cluster was known
			return nil
		}
		parent := c.store.Clusters.Row(v, flexnode.ClusterOf(key))
		layer := c.store.Layers.Row(v, parent.Value.Facts)
		facts, err := flexnode.ReadLayer(layer.Value)
		if err != nil {
			return err
		}
		next, revision := flexnode.Refresh(node.Value, nil,
			flexnode.Parent{Cluster: parent.Value, FactsLayer: facts}, c.clock.Now(), "test", 0, true)
		if revision != nil {
			if err := c.credentials.Sign(v, next.UID, revision, nil); err != nil {
				return err
			}
			history := flexnode.History{}.With(*revision, next.Assigned)
			if err := c.store.History.Set(v, key, history); err != nil {
				return err
			}
		}
		return c.store.Nodes.Put(v, key, next)
	})
	return err
}

// Create implements credential.Tokens.
func (c *fakeCluster) Create(context.Context, store.Credential, string, string) (string, error) {
	return "", c.answer()
}

// Remove implements credential.Tokens.
func (c *fakeCluster) Remove(context.Context, store.Credential) error { return c.answer() }

func (c *fakeCluster) answer() error {
	if c.isDown.Load() {
		return errors.New("connection refused")
	}
	return nil
}
