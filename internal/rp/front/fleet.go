package front

import (
	"encoding/json"
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
	counts := map[*flexnode.Class]int{}
	classOf := flexnode.Classes(a.reachable(key), a.Renderer)
	now := a.Now()
	a.Index.Outlines(key+"/", "", func(node string, o flexnode.Outline) bool {
		o.Heard = flexnode.HeardAt(a.Seen.Last(node), now)
		counts[classOf(o)]++
		return r.Context().Err() == nil
	})
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	rollout, err := a.Store.Rollouts.Get(r.Context(), key)
	if err != nil {
		return nil, err
	}
	summary := flexnode.Summary(counts)
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

// Limits of the nodes that are looked at, and of those unpacked to look at their labels, for a page
// of a filtered list. A page may be empty although there are more.
const maxLooked, maxUnpacked = 20_000, 2_000

// listed returns up to size nodes of a cluster after a key that a filter chooses, as a list shows
// them, and the key to continue after; "" at the end. It stops after maxPageBytes.
func (a *API) listed(
	cluster, after string, size int, f flexnode.Filter,
) (nodes []json.RawMessage, next string, err error) {
	reachable, now := a.reachable(cluster), a.Now()
	classOf := flexnode.Classes(reachable, a.Renderer)
	looked, unpacked, bytes, last := 0, 0, 0, after
	nodes = []json.RawMessage{} // an empty list must not be null
	a.Index.Outlines(cluster+"/", after, func(key string, o flexnode.Outline) bool {
		if looked == maxLooked || unpacked == maxUnpacked || len(nodes) == size || bytes > maxPageBytes {
			next = last
			return false
		}
		looked, last = looked+1, key
		o.Heard = flexnode.HeardAt(a.Seen.Last(key), now)
		if !f.Chooses(classOf(o)) {
			return true
		}
		unpacked++
		var row store.Row[flexnode.Node]
		row, err = a.Index.Node(key)
		if err != nil || !row.Exists() || !f.ChoosesLabels(row.Value.Desired.NodeConfig.Labels) {
			return err == nil
		}
		var node json.RawMessage
		node, err = a.brief(row, reachable)
		nodes, bytes = append(nodes, node), bytes+len(node)
		return err == nil
	})
	return nodes, next, err
}

func (a *API) brief(row store.Row[flexnode.Node], reachable bool) (json.RawMessage, error) {
	status, err := a.status(row.Key, row.Value, nil, reachable)
	if err != nil {
		return nil, err
	}
	return json.Marshal(flexnode.Shown(row.Value, nil, nil, flexnode.Brief(status)))
}
