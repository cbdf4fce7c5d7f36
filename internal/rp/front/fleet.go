package front

import (
	"encoding/json"
	"fmt"
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
	err := a.change(r, "change allowed", func(v *store.View) error {
		if _, err := a.registered(v, r); err != nil {
			return err
		}
		var err error
		row := a.Store.Rollouts.Row(v, key)
		if next, err = row.Value.Allow(ask, r.caller.Name, a.Now()); err != nil {
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
	row, err := a.Index.Cluster(r.clusterKey())
	if err != nil || row.Exists() {
		return row, err
	}
	return a.Store.Clusters.Get(r.Context(), r.clusterKey())
}

// Limits of the nodes that are looked at, and of those unpacked to look at their labels, for a page
// of a filtered list. A page may be empty although there are more.
const (
	maxLooked   = 20_000
	maxUnpacked = 2_000
)

// chosen returns up to size nodes after a key that a filter chooses, and the key to continue after;
// "" at the end.
func (a *API) chosen(
	r *request, after string, size int, f flexnode.Filter,
) (rows []store.Row[flexnode.Node], next string, err error) {
	key := r.clusterKey()
	classOf, now := flexnode.Classes(a.reachable(key), a.Renderer), a.Now()
	looked, unpacked, last := 0, 0, after
	a.Index.Outlines(key+"/", after, func(node string, o flexnode.Outline) bool {
		if looked == maxLooked || unpacked == maxUnpacked || len(rows) == size {
			next = last
			return false
		}
		looked, last = looked+1, node
		o.Heard = flexnode.HeardAt(a.Seen.Last(node), now)
		if !f.Chooses(classOf(o)) {
			return true
		}
		unpacked++
		var row store.Row[flexnode.Node]
		row, err = a.Index.Node(node)
		if err == nil && row.Exists() && f.ChoosesLabels(row.Value.Desired.NodeConfig.Labels) {
			rows = append(rows, row)
		}
		return err == nil
	})
	return rows, next, err
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
	rows, next, err := a.chosen(r, after, size, filter)
	if err != nil {
		return nil, err
	}
	list := api.List[json.RawMessage]{}
	if list.Value, err = a.listed(r, rows); err != nil {
		return nil, err
	}
	if n := len(list.Value); n < len(rows) {
		next = rows[n-1].Key
	}
	if next != "" {
		list.NextLink, err = a.nextLink(r, key, next)
	}
	return list, err
}

// listed returns nodes of a cluster as a list shows them; it stops after maxPageBytes.
func (a *API) listed(r *request, rows []store.Row[flexnode.Node]) ([]json.RawMessage, error) {
	nodes := make([]json.RawMessage, 0, len(rows)) // an empty list must not be null
	reachable, size := a.reachable(r.clusterKey()), 0
	for _, row := range rows {
		if size > maxPageBytes {
			break
		}
		status, err := a.status(row.Key, row.Value, nil, reachable)
		if err != nil {
			return nil, err
		}
		node, err := json.Marshal(flexnode.Shown(row.Value, nil, nil, flexnode.Brief(status)))
		if err != nil {
			return nil, fmt.Errorf("cannot encode %s: %w", row.Key, err)
		}
		nodes, size = append(nodes, node), size+len(node)
	}
	return nodes, nil
}
