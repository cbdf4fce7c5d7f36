package front

import (
	"cmp"
	"encoding/json"
	"iter"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// summarizeNodes counts the nodes of a cluster, from the index and without a lock.
func (a *API) summarizeNodes(r *request) (any, error) {
	key := r.clusterKey()
	if err := a.hasCluster(r, noCluster); err != nil {
		return nil, err
	}
	summary := flexnode.Summary(func(yield func(*flexnode.Class) bool) {
		for n, err := range a.nodes(key, "") {
			if r.Context().Err() != nil || err == nil && !yield(n.class) {
				return
			}
		}
	})
	rollout, err := a.Store.Rollouts.Get(r.Context(), key)
	if err = cmp.Or(err, r.Context().Err()); err != nil {
		return nil, err
	}
	summary.Changes = rollout.Value.Shown()
	summary.ArcMachinesLeft, err = a.arcMachinesLeft(r)
	return summary, err
}

const maxLeft = 200

func (a *API) arcMachinesLeft(r *request) (all []api.ArcMachineLeft, err error) {
	rows, _, err := a.Store.ArcLeft.List(r.Context(), r.clusterKey()+"/")
	for _, row := range rows[:min(len(rows), maxLeft)] {
		node, _, _ := strings.Cut(strings.TrimPrefix(row.Key, r.clusterKey()+"/"), "/")
		all = append(all, api.ArcMachineLeft{
			Node: node, MachineID: row.Value.Machine, DeletedAt: row.Value.Deleted,
			Problem: row.Value.Problem,
		})
	}
	return all, err
}

// allowVersions lets more nodes fail a held change.
func (a *API) allowVersions(r *request, ask api.AllowVersions) (any, error) {
	var next flexnode.Rollout
	key := r.clusterKey()
	err := a.change(r, "change allowed", func(v *store.View) (err error) {
		if _, err = a.registered(v, r); err != nil {
			return err
		}
		if next, err = a.Store.Rollouts.Row(v, key).Value.Allow(ask, r.caller.Name, a.Now()); err != nil {
			return err
		}
		return a.Store.Rollouts.Put(v, key, next)
	})
	return api.AllowedVersions{Changes: next.Shown()}, err
}

func (a *API) hasCluster(r *request, missing func(*request) error) error {
	row, err := a.findCluster(r)
	if err == nil && !row.Exists() {
		err = missing(r)
	}
	return err
}

// findCluster finds the cluster of a request in the index, else in the store: the index may be
// behind.
func (a *API) findCluster(r *request) (store.Row[flexnode.Cluster], error) {
	if row, err := a.Index.Cluster(r.clusterKey()); err != nil || row.Exists() {
		return row, err
	}
	return a.Store.Clusters.Get(r.Context(), r.clusterKey())
}

// listNodes answers with a page of the nodes that the caller's filter chooses, by name.
func (a *API) listNodes(r *request) (any, error) {
	key := r.clusterKey()
	if err := a.hasCluster(r, noParent); err != nil {
		return nil, err
	}
	filter, problems := flexnode.ReadFilter(r.query.Get("$filter"))
	if len(problems) > 0 {
		return nil, problems
	}
	after, size, err := a.page(r, key)
	if err != nil {
		return nil, err
	}
	nodes, next, err := a.listed(key, after, size, filter)
	list := api.List[json.RawMessage]{Value: nodes}
	if err == nil && next != "" {
		list.NextLink = a.nextLink(r, key, next)
	}
	return list, err
}

// maxLooked limits the nodes that are looked at for a page of a list. With a filter, a page may be
// empty although there are more.
const maxLooked = 2_000

// listed returns up to size nodes of a cluster after a key that a filter chooses, as a list shows
// them, and the key to continue after; "" at the end. It stops after maxPageBytes.
func (a *API) listed(
	cluster, after string, size int, f flexnode.Filter,
) (nodes []json.RawMessage, next string, err error) {
	looked, bytes := 0, 0
	nodes = []json.RawMessage{} // an empty list must not be null
	for n, err := range a.nodes(cluster, after) {
		if looked == maxLooked || len(nodes) == size || bytes > maxPageBytes {
			return nodes, after, nil
		}
		if looked, after = looked+1, n.key; err != nil && f.IsEmpty() {
			return nil, "", err
		}
		if err != nil || !f.Chooses(n.class, n.shown.Properties.NodeConfig.Labels) {
			continue
		}
		node, err := json.Marshal(n.shown)
		if err != nil {
			return nil, "", err
		}
		nodes, bytes = append(nodes, node), bytes+len(node)
	}
	return nodes, "", nil
}

// listedNode is a node as a list shows it, with its class.
type listedNode struct {
	key   string
	shown api.FlexNodeConfig
	class *flexnode.Class
}

// nodes yields the nodes of a cluster after a key, by name; one that cannot be read with an error,
// which it logs.
func (a *API) nodes(cluster, after string) iter.Seq2[listedNode, error] {
	return func(yield func(listedNode, error) bool) {
		reachable := a.reachable(cluster)
		for row, err := range a.Index.Nodes(cluster+"/", after) {
			status, unread := a.status(row.Key, row.Value, nil, reachable)
			if err = cmp.Or(err, unread); err != nil {
				a.Log.Warn("cannot list a node", "error", err)
			}
			shown := flexnode.Shown(row.Value, nil, nil, flexnode.Brief(status))
			n := listedNode{row.Key, shown, flexnode.ClassOf(row.Value, shown.Properties)}
			if !yield(n, err) {
				return
			}
		}
	}
}
