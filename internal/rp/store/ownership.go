package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// Ownership is the ownership of a cluster by this replica, from its claim to its end.
type Ownership struct {
	Cluster string // key

	fence Condition
	lease Lease
	lost  chan struct{}
	ended atomic.Bool
	// Guarded by Membership.mu: when it was lost; whether its row was seen.
	since time.Time
	told  bool
}

// Fence returns the condition under which a write is the owner's (View.Fence).
func (o *Ownership) Fence() Condition { return o.fence }

// Valid reports, by this replica's clock, whether no other can own the cluster within OwnerMargin:
// for effects outside the store.
func (o *Ownership) Valid() bool {
	return !o.ended.Load() && time.Now().Add(OwnerMargin).Before(o.lease.Until())
}

// gone reports whether a row shows that this ownership has ended. Older rows may still be seen
// after its claim.
func (o *Ownership) gone(r Row[Member]) bool {
	switch {
	case r.Revision == o.fence.Revision:
		o.told = true
		return false
	case r.Exists():
		return r.Revision > o.fence.Revision
	}
	return o.told
}

// Lost returns a channel that is closed when the ownership ends.
func (o *Ownership) Lost() <-chan struct{} { return o.lost }

// lose ends an ownership; the caller holds the lock.
func (m *Membership) lose(o *Ownership) {
	if !o.ended.Swap(true) {
		close(o.lost)
	}
	o.since = time.Now()
	delete(m.owned, o.Cluster)
	Signal(m.changed)
}

func (m *Membership) loseAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.owned {
		m.lose(o)
	}
	clear(m.leaving) // their rows go with the lease
}

func sortedKeys[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }

// reconcile claims and releases clusters, and returns the time to the next call without a change.
func (m *Membership) reconcile(ctx context.Context) time.Duration {
	within, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	err := m.sayReaches(within)
	claims, releases, next := m.plan()
	if err == nil {
		err = m.release(within, releases)
	}
	for batch := range slices.Chunk(claims, claimsAtOnce) {
		if err == nil {
			err = m.claim(within, batch)
		}
	}
	if err == nil && m.missing() {
		err = m.announce(within)
	}
	if err != nil && ctx.Err() == nil {
		m.Say(err)
		return Jitter(memberPause)
	}
	return next
}

// missing reports whether the row of this member is missing although its lease is valid.
func (m *Membership) missing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced >= syncedAll && !m.members[m.replica]
}

// plan returns the clusters to claim and to release now, and the time to the next plan.
func (m *Membership) plan() (claims []string, releases []*Ownership, next time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next = time.Minute
	if m.synced < syncedAll {
		return nil, nil, next
	}
	for _, cluster := range sortedKeys(m.owned) {
		if !m.wants(cluster) {
			o := m.owned[cluster]
			m.lose(o)
			m.leaving[cluster] = o
		}
	}
	for _, cluster := range sortedKeys(m.leaving) {
		o := m.leaving[cluster]
		if wait := OwnerMargin - time.Since(o.since); wait > 0 {
			next = min(next, wait)
		} else {
			releases = append(releases, o)
		}
	}
	releases = append(releases, m.strays()...)
	for _, cluster := range sortedKeys(m.clusters) {
		if !m.holds(cluster) && m.free(m.owners[cluster]) && m.wants(cluster) {
			claims = append(claims, cluster)
		}
	}
	return claims, releases, next
}

// wants reports whether this replica should own a cluster, and the cluster is registered.
func (m *Membership) wants(cluster string) bool {
	return m.clusters[cluster] && m.chosen(cluster) == m.replica
}

// holds reports whether this replica owns a cluster, or has yet to release it.
func (m *Membership) holds(cluster string) bool {
	return m.owned[cluster] != nil || m.leaving[cluster] != nil
}

// strays returns rows of claims whose outcome this replica did not get, and that it does not want
// any more.
func (m *Membership) strays() (strays []*Ownership) {
	for _, cluster := range sortedKeys(m.owners) {
		row := m.owners[cluster]
		if row.Value.Lease == m.lease.ID() && !m.holds(cluster) && !m.wants(cluster) {
			fence := Condition{Key: m.store.Owners.Key(cluster), Revision: row.Revision}
			strays = append(strays, &Ownership{Cluster: cluster, fence: fence})
		}
	}
	return strays
}

// free reports whether an owner's row is absent, or is this replica's by a claim whose outcome it
// did not get.
func (m *Membership) free(owner Row[Member]) bool {
	return !owner.Exists() || owner.Value.Lease == m.lease.ID()
}

// claim claims the clusters that are free, and leaves the others for later.
func (m *Membership) claim(ctx context.Context, clusters []string) error {
	var ahead []string
	for _, cluster := range clusters {
		ahead = append(ahead, m.store.Owners.Key(cluster))
	}
	var mine []Row[Member]
	revision, err := m.store.Update(ctx, "own", ahead, func(v *View) error {
		mine = nil
		for _, cluster := range clusters {
			row := m.store.Owners.Row(v, cluster)
			if !row.Exists() {
				v.Fail(m.store.Owners.Lease(v, cluster, Member{m.replica, m.lease.ID()}, m.lease))
			}
			if m.free(row) {
				mine = append(mine, row)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot claim clusters: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range mine {
		r.Revision = cmp.Or(r.Revision, revision)
		m.owned[r.Key] = &Ownership{
			Cluster: r.Key, fence: Condition{Key: m.store.Owners.Key(r.Key), Revision: r.Revision},
			lease: m.lease, lost: make(chan struct{}), told: m.owners[r.Key].Revision == r.Revision,
		}
	}
	if len(mine) > 0 {
		Signal(m.changed)
	}
	return nil
}

// release releases clusters whose effects have had time to end.
func (m *Membership) release(ctx context.Context, all []*Ownership) error {
	for some := range slices.Chunk(all, claimsAtOnce) {
		_, err := m.store.Update(ctx, "release", nil, func(v *View) error {
			for _, o := range some {
				if m.store.Owners.Row(v, o.Cluster).Revision == o.fence.Revision {
					m.store.Owners.Delete(v, o.Cluster)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("cannot release clusters: %w", err)
		}
		m.mu.Lock()
		for _, o := range some {
			delete(m.leaving, o.Cluster)
		}
		m.mu.Unlock()
	}
	return nil
}
