package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// tryAgain is the time after which a replica tries again whether it reaches a cluster.
	tryAgain = 10 * time.Minute
	// triesAtOnce limits the clusters that a replica tries at once.
	triesAtOnce = 8
)

// Report records that the owner of a cluster reaches it, or has not for a while. In the latter case
// another replica that reaches it becomes the owner; if none does, the first choice stays the
// owner.
func (m *Membership) Report(cluster string, reached bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if said, known := m.reaches[cluster][m.replica]; known && said != reached || !known && !reached {
		m.note(cluster, reached)
	}
}

// note schedules the write of a row; the caller holds the lock.
func (m *Membership) note(cluster string, reached bool) {
	m.tried[cluster], m.unsaid[cluster] = time.Now(), reached
	Signal(m.wake)
}

func (m *Membership) seeReach(r Row[bool]) {
	at := strings.LastIndexByte(r.Key, '/')
	cluster, replica := r.Key[:at], r.Key[at+1:]
	if m.reaches[cluster] == nil {
		m.reaches[cluster] = map[string]bool{}
	}
	keep(m.reaches[cluster], replica, r, r.Value)
	if len(m.reaches[cluster]) == 0 {
		delete(m.reaches, cluster)
	}
}

// chosen returns the member that should own a cluster: the first choice, unless it does not reach
// the cluster and another does. The caller holds the lock, as for the functions below.
func (m *Membership) chosen(cluster string) string {
	first := choice(m.members, cluster)
	if reached, known := m.reaches[cluster][first]; reached || !known {
		return first
	}
	reaching := maps.Clone(m.members)
	maps.DeleteFunc(reaching, func(name string, _ bool) bool { return !m.reaches[cluster][name] })
	return cmp.Or(choice(reaching, cluster), first)
}

// tries returns the clusters that this replica must try to reach: their first choice does not, and
// no member before this one has yet to try.
func (m *Membership) tries() (tries []string) {
	for cluster, said := range m.reaches {
		reached, known := said[choice(m.members, cluster)]
		if reached || !known || m.owned[cluster] != nil || time.Since(m.tried[cluster]) < tryAgain {
			continue
		}
		own, tried := said[m.replica]
		silent := maps.Clone(m.members)
		maps.DeleteFunc(silent, func(name string, _ bool) bool {
			_, known := said[name]
			return known
		})
		if tried && !own || choice(silent, cluster) == m.replica {
			tries = append(tries, cluster)
		}
	}
	return tries
}

// tryAll tries to reach clusters, unless a try is under way.
func (m *Membership) tryAll(ctx context.Context, working *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Try == nil || m.trying || m.synced < syncedAll {
		return
	}
	clusters := m.tries()
	if m.trying = len(clusters) > 0; !m.trying {
		return
	}
	working.Go(func() {
		var all errgroup.Group
		all.SetLimit(triesAtOnce)
		for _, cluster := range clusters {
			all.Go(func() (err error) {
				defer func() {
					if errors.Is(err, ErrCrash) {
						m.Say(err)
					}
					m.mu.Lock()
					defer m.mu.Unlock()
					m.note(cluster, err == nil)
				}()
				defer Caught(&err)
				return m.Try(ctx, cluster)
			})
		}
		_ = all.Wait() // note has recorded the errors
		m.mu.Lock()
		defer m.mu.Unlock()
		m.trying = false
	})
}

// sayReaches writes pending rows of Reaches. A first choice that reaches its cluster has no row,
// nor has a cluster that is not registered.
func (m *Membership) sayReaches(ctx context.Context) error {
	m.mu.Lock()
	for cluster, said := range m.reaches {
		if _, own := said[m.replica]; own && !m.clusters[cluster] {
			m.unsaid[cluster] = true
		}
	}
	maps.DeleteFunc(m.tried, func(cluster string, _ time.Time) bool { return !m.clusters[cluster] })
	unsaid, rows := m.unsaid, map[string]bool{}
	m.unsaid = map[string]bool{}
	for cluster, reached := range unsaid {
		rows[cluster] = m.clusters[cluster] && !(reached && choice(m.members, cluster) == m.replica)
	}
	m.mu.Unlock()
	for batch := range slices.Chunk(sortedKeys(unsaid), claimsAtOnce) {
		_, err := m.store.Update(ctx, "reach told", nil, func(v *View) error {
			for _, cluster := range batch {
				key := cluster + "/" + m.replica
				if !rows[cluster] {
					m.store.Reaches.Delete(v, key)
				} else if err := m.store.Reaches.Lease(v, key, unsaid[cluster], m.lease); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			maps.Copy(unsaid, m.unsaid)
			m.unsaid = unsaid
			return fmt.Errorf("cannot tell which clusters are reached: %w", err)
		}
	}
	return nil
}
