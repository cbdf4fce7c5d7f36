package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// rotate gives the provider new client certificates at random times.
func (c *chaosRun) rotate(ctx context.Context) error {
	r := c.random(1001)
	for rest(ctx, r, 4*time.Second, 12*time.Second) {
		if err := c.lab.rotateProvider(); err != nil {
			return err
		}
	}
	return nil
}

// compact removes the store's history at random times, so that a replica that was away must read
// everything again.
func (c *chaosRun) compact(ctx context.Context) error {
	r := c.random(1002)
	for rest(ctx, r, 5*time.Second, 20*time.Second) {
		_, _ = c.etcd.CompactAll(ctx) // may fail without quorum, or after a later compaction
	}
	return nil
}

// kubelets creates, changes and deletes Nodes of the first cluster, Ready and not.
func (c *chaosRun) kubelets(ctx context.Context) error {
	r := c.random(1003)
	for rest(ctx, r, time.Second, 3*time.Second) {
		name := c.nodes[r.IntN(firstNodes)].name
		err := c.kubelet(context.WithoutCancel(ctx), name, r.IntN(4))
		if err != nil {
			return fmt.Errorf("cannot change the Node %s: %w", name, err)
		}
	}
	return nil
}

// kubelet creates, changes or deletes a Node.
func (c *chaosRun) kubelet(ctx context.Context, name string, dice int) error {
	if dice == 0 {
		_, err := c.lab.Kubectl(ctx, "", "delete", "node", name, "--ignore-not-found")
		return err
	}
	ready := "True"
	if dice == 1 {
		ready = "False"
	}
	now := time.Now().UTC().Format(time.RFC3339)
	status := object{"conditions": []object{{"type": "Ready", "status": ready, "reason": "Chaos",
		"message": "as the dice fell", "lastHeartbeatTime": now, "lastTransitionTime": now}}}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name}, "status": status})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if _, err := c.lab.Kubectl(ctx, "", "get", "node", name); err != nil {
		_, err := c.lab.Kubectl(ctx, string(text), "create", "-f", "-")
		return err
	}
	patch, err := json.Marshal(object{"status": status})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	_, err = c.lab.Kubectl(ctx, "", "patch", "node", name, "--subresource=status", "--type=merge",
		"--patch="+string(patch))
	return err
}

// register registers the second cluster and deletes all nodes.
func (c *chaosRun) register(ctx context.Context) error {
	r := c.random(1004)
	if !c.registered(ctx, r) {
		return errors.New("cannot register the second cluster")
	}
	for _, n := range c.nodes {
		if a := c.ask(ctx, 0, http.MethodDelete, n.id, nil, ""); a.status/100 != 2 {
			return fmt.Errorf("cannot delete %s: %d %s", n.name, a.status, a.body)
		}
	}
	return nil
}

// registrations deletes the second cluster's registration with its nodes, and registers it again.
func (c *chaosRun) registrations(ctx context.Context) error {
	r := c.random(1005)
	patient := context.WithoutCancel(ctx)
	for rest(ctx, r, 10*time.Second, 25*time.Second) {
		called := time.Since(c.began)
		if !c.unregistered(patient, r) {
			c.blame("the second cluster is not deleted after a minute")
			return nil
		}
		for _, n := range c.nodes {
			if n.inSecond() {
				c.keep(chaosClients, step{node: n.name, verb: clearOp}, outcome{known: true}, called)
			}
		}
		if !c.registered(patient, r) {
			c.blame("the second cluster is not registered again after a minute")
			return nil
		}
	}
	return nil
}

// unregistered deletes the second cluster's registration and waits until it is gone.
func (c *chaosRun) unregistered(ctx context.Context, r *rand.Rand) bool {
	wipe := r.IntN(2) == 0
	return c.eventually(ctx, r, func(replica int) bool {
		what := "?nodes=release"
		if wipe {
			var found api.DeletionCounts
			a := c.ask(ctx, replica, http.MethodDelete, SecondClusterID+"?dryRun=true", nil, "")
			_ = json.Unmarshal(a.body, &found) // a response without a count confirms nothing
			what = fmt.Sprintf("?nodes=wipe&confirm=%d", found.Nodes)
		}
		a := c.ask(ctx, replica, http.MethodDelete, SecondClusterID+what, nil, "")
		return a.status == http.StatusAccepted || gone(a.status)
	}) && c.eventually(ctx, r, func(replica int) bool {
		return gone(c.ask(ctx, replica, http.MethodGet, SecondClusterID, nil, "").status)
	})
}

// registered registers the second cluster and waits until the provider has reached it.
func (c *chaosRun) registered(ctx context.Context, r *rand.Rand) bool {
	return c.eventually(ctx, r, func(replica int) bool {
		a := c.ask(ctx, replica, http.MethodPut, SecondClusterID, secondBody(), "")
		return a.status/100 == 2
	}) && c.eventually(ctx, r, func(replica int) bool {
		a := c.ask(ctx, replica, http.MethodGet, SecondClusterID, nil, "")
		var shown api.ManagedCluster
		return a.status == http.StatusOK && json.Unmarshal(a.body, &shown) == nil &&
			shown.Properties.ProvisioningState == api.Succeeded
	})
}

// eventually tries random replicas for a minute until one try succeeds.
func (c *chaosRun) eventually(ctx context.Context, r *rand.Rand, try func(replica int) bool) bool {
	end := time.Now().Add(time.Minute)
	for time.Now().Before(end) && ctx.Err() == nil {
		if try(r.IntN(c.lab.Replicas)) {
			return true
		}
		time.Sleep(200 * time.Millisecond)
	}
	return false
}
