package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Kinds of violations after the provider has caught up.
const (
	orphanSecrets = "orphan_secrets" // in a cluster, without a credential
	lostSecrets   = "lost_secrets"   // of live credentials, missing in their cluster
	orphanBundles = "orphan_bundles" // without a live credential
	orphanRows    = "orphan_rows"    // of deleted nodes or credentials
	deadURLs      = "dead_urls"      // of live credentials, not responding
	ghostURLs     = "ghost_urls"     // responding without a live credential
	unfinished    = "unfinished"     // credentials, nodes and clusters in transition
	staleReady    = "stale_ready"    // other than the Node's
	staleReads    = "stale_reads"    // a replica's lists and polls that differ from the store
)

var findingKinds = []string{orphanSecrets, lostSecrets, orphanBundles, orphanRows, deadURLs,
	ghostURLs, unfinished, staleReady, staleReads}

// findings counts violations by kind, with examples.
type findings struct {
	counts   map[string]int
	examples []string
	alive    int
}

func (f *findings) add(kind, format string, args ...any) {
	f.counts[kind]++
	if f.counts[kind] <= 3 {
		f.examples = append(f.examples, kind+": "+fmt.Sprintf(format, args...))
	}
}

func (f *findings) none() bool { return len(f.examples) == 0 }

// rows holds the rows of the store.
type rows struct {
	nodes       map[string]flexnode.Node
	credentials map[string]store.Credential
}

// inspect searches for violations.
func (c *chaosRun) inspect(ctx context.Context) (*findings, error) {
	f := &findings{counts: map[string]int{}}
	r, err := c.rows(ctx)
	if err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, rows, *findings) error{
		c.checkWork, c.checkRows, c.checkSecrets, c.checkURLs, c.checkReady, c.checkReads,
	} {
		if err := check(ctx, r, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (c *chaosRun) rows(ctx context.Context) (rows, error) {
	r := rows{map[string]flexnode.Node{}, map[string]store.Credential{}}
	nodes, _, err := c.store.Nodes.List(ctx, "")
	if err != nil {
		return r, err
	}
	for _, row := range nodes {
		r.nodes[row.Key] = row.Value
	}
	credentials, _, err := c.store.Credentials.List(ctx, "")
	for _, row := range credentials {
		r.credentials[row.Key] = row.Value
	}
	return r, err
}

// live reports whether a credential is the live one of its node.
func (r rows) live(key string) bool {
	c, ok := r.credentials[key]
	return ok && c.State == store.Live && r.nodes[c.Node].Credential == key
}

// checkWork finds unfinished work of reconcilers.
func (c *chaosRun) checkWork(ctx context.Context, r rows, f *findings) error {
	for key, credential := range r.credentials {
		if !r.live(key) {
			f.add(unfinished, "credential %s of %s is %s %s", key, credential.Node,
				credential.State, credential.Problem)
		}
	}
	for key, n := range r.nodes {
		if n.Revision == 0 || n.State != "" && n.State != "Succeeded" {
			f.add(unfinished, "node %s is %s, revision %d: %s", key, n.State, n.Revision, n.Reason)
		}
	}
	clusters, _, err := c.store.Clusters.List(ctx, "")
	for _, row := range clusters {
		if row.Value.Deletion != nil || !row.Value.Properties.Reachable {
			f.add(unfinished, "cluster %s: reachable %v, deletion %v", row.Key,
				row.Value.Properties.Reachable, row.Value.Deletion)
		}
	}
	return err
}

// checkRows finds rows whose owner does not exist.
func (c *chaosRun) checkRows(ctx context.Context, r rows, f *findings) error {
	bundles, _, err := c.store.Bundles.List(ctx, "")
	if err != nil {
		return err
	}
	for _, row := range bundles {
		if !r.live(row.Key) {
			f.add(orphanBundles, "%s", row.Key)
		}
	}
	histories, _, err := c.store.History.List(ctx, "")
	if err != nil {
		return err
	}
	for _, row := range histories {
		if _, there := r.nodes[row.Key]; !there {
			f.add(orphanRows, "history of %s", row.Key)
		}
	}
	subnets, _, err := c.store.PodCIDRs.List(ctx, "")
	if err != nil {
		return err
	}
	for _, row := range subnets {
		if _, there := r.nodes[row.Value]; !there {
			f.add(orphanRows, "subnet %s of %s", row.Key, row.Value)
		}
	}
	tokens, _, err := c.store.Tokens.List(ctx, "")
	for _, row := range tokens {
		if _, there := r.credentials[row.Value]; !there {
			f.add(orphanRows, "token %s of %s", row.Key, row.Value)
		}
	}
	return err
}

// clusterKey returns the store key of a cluster.
func clusterKey(id string) string {
	parts := strings.Split(strings.ToLower(id), "/")
	return parts[2] + "/" + parts[4] + "/" + parts[8]
}

// checkSecrets compares the clusters' Secrets with the credentials that have one.
func (c *chaosRun) checkSecrets(ctx context.Context, r rows, f *findings) error {
	args := []string{"get", "secrets", "--namespace=kube-system",
		"--selector=flexnode.azure.com/provider=flexnode-rp", "--output=name"}
	first, err := c.lab.Kubectl(ctx, "", args...)
	if err != nil {
		return err
	}
	second, err := c.lab.second(ctx, "", args...)
	if err != nil {
		return err
	}
	for cluster, out := range map[string]string{ClusterID: first, SecondClusterID: second} {
		there := map[string]bool{}
		for _, name := range strings.Fields(out) {
			there[strings.TrimPrefix(name, "secret/bootstrap-token-")] = true
		}
		for key, credential := range r.credentials {
			if credential.Cluster != clusterKey(cluster) || credential.TokenID == "" {
				continue
			}
			if credential.State == store.Live && !there[credential.TokenID] {
				f.add(lostSecrets, "%s of %s", credential.TokenID, key)
			}
			if credential.State == store.Live || credential.State == store.Consumed {
				delete(there, credential.TokenID)
			}
		}
		for id := range there {
			f.add(orphanSecrets, "%s in %s", id, cluster)
		}
	}
	return nil
}

// checkURLs requests every URL handed out.
func (c *chaosRun) checkURLs(ctx context.Context, r rows, f *findings) error {
	c.mu.Lock()
	urls := maps.Clone(c.urls)
	c.mu.Unlock()
	keys := slices.Sorted(maps.Keys(urls))
	status, errs := make([]int, len(keys)), make([]error, chaosClients)
	var wg sync.WaitGroup
	for first := range chaosClients {
		wg.Go(func() {
			for i := first; i < len(keys) && errs[first] == nil; i += chaosClients {
				status[i], errs[first] = c.head(ctx, i%c.lab.Replicas, urls[keys[i]])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, key := range keys {
		switch live := r.live(key); {
		case live && status[i] == http.StatusOK:
			f.alive++
		case live:
			f.add(deadURLs, "%s is answered with %d", key, status[i])
		case status[i] != http.StatusForbidden:
			f.add(ghostURLs, "%s is answered with %d", key, status[i])
		}
	}
	return nil
}

// checkReady compares the nodes' Ready conditions with the Nodes of the first cluster.
func (c *chaosRun) checkReady(ctx context.Context, r rows, f *findings) error {
	out, err := c.lab.Kubectl(ctx, "", "get", "nodes", "--output=jsonpath="+
		`{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`)
	if err != nil {
		return err
	}
	ready := map[string]string{}
	for _, field := range strings.Fields(out) {
		name, status, _ := strings.Cut(field, "=")
		ready[name] = status
	}
	for i, n := range c.nodes {
		a := c.ask(ctx, i%c.lab.Replicas, http.MethodGet, n.id, nil, "")
		var shown shownNode
		if a.status == http.StatusNotFound {
			continue
		}
		if a.status != http.StatusOK || json.Unmarshal(a.body, &shown) != nil {
			return fmt.Errorf("%s is answered with %d", n.name, a.status)
		}
		want := ready[n.name]
		if n.inSecond() {
			want = ""
		}
		if is := readyOf(shown); is != want && (want != "" || is != "Unknown") {
			f.add(staleReady, "%s is shown as %q, its Node is %q", n.name, is, want)
		}
	}
	return nil
}

// readyOf returns the status of a node's Ready condition, or "".
func readyOf(n shownNode) string {
	for _, condition := range n.Properties.Status.Conditions {
		if condition.Type == flexnode.Ready {
			return condition.Status
		}
	}
	return ""
}

// checkReads compares lists and polls at all replicas with the store.
func (c *chaosRun) checkReads(ctx context.Context, r rows, f *findings) error {
	for replica := range c.lab.Replicas {
		for _, cluster := range []string{ClusterID, SecondClusterID} {
			listed, ok := c.pages(ctx, replica, cluster)
			if !ok {
				return fmt.Errorf("replica %d does not list %s", replica, cluster)
			}
			c.compareList(replica, cluster, listed, r, f)
		}
		for _, n := range c.nodes {
			node, there := r.nodes[clusterKey(n.id)+"/"+n.name]
			if !there {
				continue
			}
			a := c.ask(ctx, replica, http.MethodGet, n.id, nil, node.ETag())
			if a.status != http.StatusNotModified {
				f.add(staleReads, "replica %d answers a poll of %s with %d", replica, n.name, a.status)
			}
			a = c.ask(ctx, replica, http.MethodGet, n.id, nil, `"00000000-1"`)
			if a.status != http.StatusOK || a.etag != node.ETag() {
				f.add(staleReads, "replica %d answers a poll of %s with %d %s instead of %s",
					replica, n.name, a.status, a.etag, node.ETag())
			}
		}
	}
	return nil
}

func (c *chaosRun) compareList(
	replica int, cluster string, listed []shownNode, r rows, f *findings,
) {
	etags := map[string]string{}
	for _, n := range listed {
		etags[n.Name] = n.ETag
	}
	for _, n := range c.nodes {
		if !strings.HasPrefix(n.id, cluster+"/") {
			continue
		}
		node, there := r.nodes[clusterKey(n.id)+"/"+n.name]
		if etag, shown := etags[n.name]; shown != there || there && etag != node.ETag() {
			f.add(staleReads, "replica %d lists %s as %q instead of %q", replica, n.name, etag,
				node.ETag())
		}
	}
}
