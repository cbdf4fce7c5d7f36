// Package rollout rolls changes out to the nodes of a cluster: it gathers the arguments of
// flexnode.Admit and writes its decisions. It runs in the replica that owns the cluster, and its
// writes are fenced, so that no two replicas admit nodes at once.
package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Index is the part of the replica's copy of the store that is used (store.Index).
type Index interface {
	Nodes(prefix, after string) iter.Seq2[store.Row[flexnode.Node], error]
	Status(key string) (store.Row[flexnode.Status], error)
	Cluster(key string) (store.Row[flexnode.Cluster], error)
	Unsettled(cluster string) bool
	Revision() int64
}

// Rollout is the rollout in one cluster, by one replica. It is not safe for concurrent use.
type Rollout struct {
	Store *store.Store
	Index Index
	// Cluster is the key of the cluster, Fence a condition of all writes.
	Cluster string
	Fence   store.Condition
	// Heard reports whether the agent of a node was heard of lately. Ready returns the present Ready
	// condition of its Node, given the stored one; nil if it is unknown.
	Heard func(nodeKey string) bool
	Ready func(nodeKey string, stored *api.Condition) *api.Condition
	Now   func() time.Time
	Log   *slog.Logger

	changes map[string]known
	// shared holds the changes in changes by id: many nodes have the same one.
	shared map[string]flexnode.Change
	// settled reports that the stored states count no nodes that wait or try.
	settled bool
	// need is the revision that the index must have before the next round; 0 until begin has set it.
	need int64
	// round is the revision of the stored states that this round is based on.
	round int64
	// notBefore limits the load: decisions take at most a sixth of the time.
	notBefore time.Time
}

// The pauses between two rounds: while a node is under a change, while nodes only wait or do not
// answer, and while the index is behind.
const (
	pause       = time.Second
	idlePause   = 10 * time.Second
	behindPause = 50 * time.Millisecond
	// together is the number of concurrent writes of nodes: the store syncs its disk once for several.
	together = 16
)

// Step does one round. It returns the latest time of the next one; zero if it can wait for a
// change.
func (r *Rollout) Step(ctx context.Context) (time.Time, error) {
	if r.settled && !r.Index.Unsettled(r.Cluster) {
		return time.Time{}, nil
	}
	start := r.Now() // its differences to other times do not depend on how the clock is set
	if start.Before(r.notBefore) {
		return r.notBefore, nil
	}
	began := start.UTC().Truncate(time.Millisecond)
	if behind, err := r.isBehind(ctx); behind || err != nil {
		return began.Add(behindPause), err
	}
	cluster, err := r.Index.Cluster(r.Cluster)
	if err != nil || !cluster.Exists() || cluster.Value.Deleting() {
		return time.Time{}, err
	}
	before, err := r.Store.Rollouts.Get(ctx, r.Cluster)
	if err != nil || !before.Exists() { // the registration was deleted and made again
		r.need = 0
		return began.Add(behindPause), err
	}
	r.round = before.Revision
	policy, _ := flexnode.ReadPolicy(cluster.Value.Properties.RolloutPolicy) // it was checked
	nodes, err := r.candidates(ctx, cluster.Value, began)
	if err != nil {
		return time.Time{}, err
	}
	moves, states := flexnode.Admit(policy, nodes, before.Value.Changes, began)
	decided := r.Now()
	err = errors.Join(r.move(ctx, nodes, moves), r.keep(ctx, before, states))
	if err != nil {
		return time.Time{}, err
	}
	r.settled = true
	next := idlePause
	for _, s := range states {
		r.settled = r.settled && s.Waiting+s.Trying+s.Unknown == 0
		if s.Trying > 0 {
			next = pause
		}
	}
	if len(moves) > 0 {
		next = pause
	} else if r.settled && !r.Index.Unsettled(r.Cluster) {
		return time.Time{}, nil
	}
	r.notBefore = r.Now().Add(5 * decided.Sub(start))
	return slices.MaxFunc([]time.Time{r.notBefore, r.Now().Add(next)}, time.Time.Compare), nil
}

// isBehind reports whether the index may lack a node that this replica, or a previous owner of the
// cluster, has admitted.
func (r *Rollout) isBehind(ctx context.Context) (bool, error) {
	if r.need == 0 {
		var err error
		if r.need, err = r.begin(ctx); err != nil {
			return true, fmt.Errorf("cannot begin the rollout of a cluster: %w", err)
		}
	}
	return r.Index.Revision() < r.need, nil
}

// begin writes the stored states again, and returns their revision. The writes of earlier rounds,
// also of the previous owner, depend on the revision before: if their outcome is unknown, they have
// been made by now or never will be. Otherwise a late one could admit a node beside the next round.
func (r *Rollout) begin(ctx context.Context) (revision int64, err error) {
	return r.Store.Update(ctx, "rollout begun", nil, func(v *store.View) error {
		v.Fence(r.Fence)
		if !r.Store.Clusters.Row(v, r.Cluster).Exists() {
			return nil
		}
		return r.Store.Rollouts.Put(v, r.Cluster, r.Store.Rollouts.Row(v, r.Cluster).Value)
	})
}

// candidates returns the nodes of the cluster that have a configuration.
func (r *Rollout) candidates(
	ctx context.Context, cluster flexnode.Cluster, now time.Time,
) ([]flexnode.Candidate, error) {
	if r.changes == nil {
		r.changes, r.shared = map[string]known{}, map[string]flexnode.Change{}
	}
	var all []flexnode.Candidate
	used := map[string]bool{}
	for row, err := range r.Index.Nodes(r.Cluster+"/", "") {
		if err != nil {
			return nil, err
		}
		if row.Value.Assigned == 0 {
			continue
		}
		c, err := r.candidate(ctx, row, now)
		if err != nil {
			return nil, err
		}
		if !cluster.Properties.Reachable {
			c.Ready = "Unknown"
		}
		used[row.Key], all = true, append(all, c)
	}
	maps.DeleteFunc(r.changes, func(key string, _ known) bool { return !used[key] })
	r.shared = map[string]flexnode.Change{}
	for _, k := range r.changes {
		r.shared[k.change.ID] = k.change
	}
	return all, nil
}

// notReadyFor is the time after which a Node that is not Ready counts: kubelet reports that for a
// moment after each start of the machine.
const notReadyFor = time.Minute

func (r *Rollout) candidate(
	ctx context.Context, row store.Row[flexnode.Node], now time.Time,
) (flexnode.Candidate, error) {
	n := row.Value
	status, err := r.Index.Status(row.Key)
	if err != nil {
		return flexnode.Candidate{}, err
	}
	applied, failed := status.Value.Applied(), status.Value.Failed()
	c := flexnode.Candidate{
		Key: row.Key, UID: n.UID, Desired: n.Revision, Assigned: n.Assigned, Applied: applied,
		Failed: failed, Refused: n.Failed,
		Insisted: n.Insisted == n.Revision, Attempt: n.Attempt, FailedChanges: n.FailedChanges,
		Asks:  n.Asks != 0 && n.Asks == n.Revision,
		Heard: r.Heard(row.Key), Open: true, Restored: n.Lost(applied) != 0,
	}
	if n.MachineKey == "" {
		c.Speaker = n.Identity
	}
	c.Follows = n.Desired.ContinuousMonitoring || c.Heard
	ready := status.Value.Ready
	if n.Attempt != nil { // it is judged, and the stored condition may be behind
		ready = r.Ready(row.Key, ready)
	}
	if ready != nil {
		if c.Ready = ready.Status; c.Ready == "False" && now.Sub(ready.LastTransitionTime) < notReadyFor {
			c.Ready = "Unknown"
		}
	}
	if failed != 0 {
		c.ByHand = status.Value.Report.Config.Failed.Reason == agentapi.RolledBack
	}
	if applied == 0 || applied == n.Revision || c.Offered() {
		return c, nil
	}
	k, same := r.changes[row.Key]
	if !same || k.desired != n.Revision || k.applied != applied || k.assigned != n.Assigned {
		if k, err = r.compare(ctx, row.Key, n, applied); ctx.Err() != nil {
			return c, err
		}
		if err != nil { // it does not stop other nodes' changes
			r.Log.Warn("cannot compare the configurations of a node", "node", row.Key,
				slog.Any("error", err))
			c.Change, c.Open = flexnode.Change{ID: flexnode.Unreadable}, false
			return c, nil
		}
		if change, known := r.shared[k.change.ID]; known {
			k.change = change
		}
		r.shared[k.change.ID] = k.change
		r.changes[row.Key] = k
	}
	c.Change, c.Same, c.Kept = k.change, k.same, k.kept
	c.Open = (k.window == nil || !k.window.Opens(now).After(now)) && !n.Desired.UpgradePolicy.Paused
	return c, nil
}

// move writes the decisions about nodes. A node that has changed meanwhile is left for the next
// round. The ends of slots are written first: if one was not, since its agent has begun meanwhile,
// this round gives no slot.
func (r *Rollout) move(ctx context.Context, nodes, moves []flexnode.Candidate) error {
	seen := map[string]flexnode.Candidate{}
	for _, c := range nodes {
		seen[c.Key] = c
	}
	decided := map[string]flexnode.Candidate{}
	var ends, gives []string
	for _, m := range moves {
		decided[m.Key] = m
		if m.HasSlot() && !seen[m.Key].HasSlot() {
			gives = append(gives, m.Key)
		} else {
			ends = append(ends, m.Key)
		}
	}
	kept, err := r.write(ctx, ends, seen, decided)
	if err == nil && !kept {
		_, err = r.write(ctx, gives, seen, decided)
	}
	return err
}

// write writes some of the nodes, and reports whether one of them keeps its slot.
func (r *Rollout) write(
	ctx context.Context, keys []string, seen, decided map[string]flexnode.Candidate,
) (kept bool, err error) {
	var mu sync.Mutex // of kept
	last, err := r.Store.UpdateEach(ctx, keys, store.Each{
		What: "nodes admitted", Together: together,
		Ahead: func(key string) []string {
			return []string{r.Store.Nodes.Key(key), r.Store.Rollouts.Key(r.Cluster)}
		},
		One: func(v *store.View, key string) error {
			v.Fence(r.Fence)
			same := r.Store.Rollouts.IsAt(v, r.Cluster, r.round)
			row := r.Store.Nodes.Row(v, key)
			c, n := seen[key], row.Value
			mu.Lock()
			defer mu.Unlock()
			if !same || !row.Exists() {
				kept = kept || !same // another allowance was written: the next round has it
				return nil
			}
			m := decided[key]
			ends := c.HasSlot() && !m.HasSlot()
			unchanged := n.Revision == c.Desired && n.Assigned == c.Assigned
			switch same = n.UID == c.UID && reflect.DeepEqual(n.Attempt, c.Attempt); {
			case same && unchanged:
				if err := r.apply(v, &n, c, m); err != nil {
					return err
				}
			case same && ends: // its owner has changed it since, and must not keep the slot by that
				n.Attempt, n.FailedChanges = m.Attempt, m.FailedChanges
			default:
				kept = kept || n.UID == c.UID && ends
				return nil
			}
			return r.Store.Nodes.Put(v, key, n)
		},
	})
	if r.need = max(r.need, last); err != nil { // it is unknown what was written
		r.need = 0
	}
	if last > 0 {
		r.Log.Info("nodes admitted, judged or sent back", slog.Int("nodes", len(keys)))
	}
	return kept, err
}

// apply changes a node to the decision. A node that goes back gets its former identity back, and
// is rendered again if the facts have changed.
func (r *Rollout) apply(v *store.View, n *flexnode.Node, c, m flexnode.Candidate) error {
	back := m.Assigned == c.Applied && m.Assigned != c.Desired && m.Assigned != c.Assigned
	n.Failed, n.Attempt, n.FailedChanges = m.Refused, m.Attempt, m.FailedChanges
	if !back {
		n.Assigned = m.Assigned
		return nil
	}
	applied, err := r.Store.History.Row(v, m.Key).Value.Find(c.Applied)
	if err != nil || applied == nil {
		return err
	}
	facts, err := r.Store.Layer(v.Context(), applied.Facts)
	if err != nil {
		return err
	}
	n.Assigned, n.Facts = m.Assigned, applied.Facts
	n.GoBack(*applied, flexnode.Parent{FactsLayer: facts}.Tenant())
	return nil
}

// keep writes the states of the changes, if they have changed.
func (r *Rollout) keep(
	ctx context.Context, before store.Row[flexnode.Rollout], states []flexnode.State,
) error {
	if len(states) == 0 && len(before.Value.Changes) == 0 ||
		reflect.DeepEqual(before.Value.Changes, states) {
		return nil
	}
	_, err := r.Store.Update(ctx, "rollout noted", nil, func(v *store.View) error {
		v.Fence(r.Fence)
		if !r.Store.Rollouts.IsAt(v, r.Cluster, before.Revision) && before.Exists() {
			return nil // another allowance was written: the next round has it
		}
		return r.Store.Rollouts.Put(v, r.Cluster, flexnode.Rollout{Changes: states})
	})
	return err
}

// known holds the comparison of the revision that a node runs with the desired one.
type known struct {
	desired, applied, assigned int64
	change                     flexnode.Change
	// kept reports that the applied revision is kept, same that the assigned one is another and
	// differs from the desired one in nothing that disturbs.
	kept, same bool
	window     *config.MaintenanceWindow // nil is always open
}

// compare compares both revisions. If the applied one is not kept any more, the change is all of
// the desired one.
func (r *Rollout) compare(
	ctx context.Context, key string, n flexnode.Node, applied int64,
) (known, error) {
	k := known{desired: n.Revision, applied: applied, assigned: n.Assigned}
	history, err := r.Store.History.Get(ctx, key)
	if err != nil {
		return k, err
	}
	to, err := r.Store.Kept(ctx, history.Value, n.Revision)
	from, err2 := r.Store.Kept(ctx, history.Value, applied)
	if err := errors.Join(err, err2); err != nil {
		return k, err
	}
	k.kept, k.change, k.window = from != nil, flexnode.ChangeOf(from, to), windowIn(to)
	if n.Assigned == n.Revision || n.Assigned == applied {
		return k, nil
	}
	offered, err := r.Store.Kept(ctx, history.Value, n.Assigned)
	k.same = offered != nil && flexnode.ChangeOf(offered, to).ID == ""
	return k, err
}

// windowIn returns the maintenance window of a configuration; nil is always open.
func windowIn(whole map[string]any) *config.MaintenanceWindow {
	var c struct {
		Agent struct {
			UpgradePolicy struct{ MaintenanceWindow config.MaintenanceWindow }
		}
	}
	window := &c.Agent.UpgradePolicy.MaintenanceWindow
	text, err := json.Marshal(whole)
	if err != nil || json.Unmarshal(text, &c) != nil || window.Start == "" {
		return nil
	}
	return window
}
