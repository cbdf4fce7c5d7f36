package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// replica is a process with a connection of its own.
type replica struct {
	*Membership
	m     *storetest.Memory
	stop  func()
	wrong atomic.Int64 // the number of reported errors
}

func join(t *testing.T, m *storetest.Memory, name string) *replica {
	return joinTrying(t, m.Another(), name, nil)
}

// joinTrying joins a replica, on a connection, that tries to reach clusters.
func joinTrying(
	t *testing.T, its *storetest.Memory, name string, try func(context.Context, string) error,
) *replica {
	s := New(its)
	keepUp(t, NewIndex(s))
	membership := NewMembership(s, name)
	r := &replica{Membership: membership, m: its}
	membership.Say = func(error) { r.wrong.Add(1) }
	membership.Try = try
	stop := background(t, membership.Run)
	r.stop = func() {
		its.Resume()
		stop()
	}
	t.Cleanup(r.stop)
	return r
}

// knows returns the live replicas that this one has seen.
func (r *replica) knows() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sortedKeys(r.members)
}

// chosen returns a cluster whose first choice is one of a and b.
func chosen(name string) string {
	for i := 0; ; i++ {
		cluster := fmt.Sprint("s/g/c", i)
		if choice(map[string]bool{"a": true, "b": true}, cluster) == name {
			return cluster
		}
	}
}

func putCluster(t *testing.T, s *Store, key string) {
	setRow(t, s.Clusters, key, flexnode.Cluster{ID: key})
}

// ownersOf returns the owner of each cluster; it fails the test if one has two.
func ownersOf(t *testing.T, replicas ...*replica) map[string]*replica {
	t.Helper()
	owners := map[string]*replica{}
	for _, r := range replicas {
		for _, cluster := range r.Owned() {
			o, ok := r.Owns(cluster)
			if !ok || !o.Valid() {
				continue
			}
			if other := owners[cluster]; other != nil {
				t.Errorf("%s is owned by %s and %s", cluster, r.replica, other.replica)
			}
			owners[cluster] = r
		}
	}
	return owners
}

// M25: clusters are spread over the replicas, and a change of replicas moves as few as possible.
func TestClustersAreSpread(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		for i := range 150 { // more than one transaction claims
			putCluster(t, s, fmt.Sprintf("s/g/c%03d", i))
		}
		a := join(t, m, "a")
		synctest.Wait()
		equal(t, "what one replica owns of 150", len(ownersOf(t, a)), 150)
		b, c := join(t, m, "b"), join(t, m, "c")
		time.Sleep(OwnerMargin + time.Second)
		before := ownersOf(t, a, b, c)
		for _, r := range []*replica{a, b, c} {
			if n := len(r.Owned()); n < 25 || n > 75 {
				t.Errorf("%s owns %d of 150", r.replica, n)
			}
		}
		if got := fmt.Sprint(c.knows()); len(before) != 150 || got != "[a b c]" {
			t.Errorf("%d of 150 are owned, members are %s", len(before), got)
		}
		d := join(t, m, "d")
		time.Sleep(OwnerMargin + time.Second)
		after := ownersOf(t, a, b, c, d)
		for cluster, owner := range after {
			if owner != before[cluster] && owner != d {
				t.Errorf("%s went from %s to %s", cluster, before[cluster].replica, owner.replica)
			}
		}
		if n := len(d.Owned()); len(after) != 150 || n < 13 {
			t.Errorf("%d of 150 are owned, %d by the new one", len(after), n)
		}
		b.stop() // it leaves in order: the others need not wait
		synctest.Wait()
		for cluster, owner := range ownersOf(t, a, c, d) {
			if was := after[cluster]; owner != was && was != b {
				t.Errorf("%s went from %s to %s", cluster, was.replica, owner.replica)
			}
		}
		if got := ownersOf(t, a, c, d); len(got) != 150 || len(b.Owned()) != 0 {
			t.Errorf("%d of 150 are owned", len(got))
		}
	})
}

// A replica that was stopped for long does not act as an owner when it resumes, and its writes are
// refused.
func TestAPausedReplicaIsNoOwner(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		cluster := chosen("a")
		putCluster(t, s, cluster)
		a := join(t, m, "a")
		synctest.Wait()
		o, ok := a.Owns(cluster)
		if !ok || !o.Valid() {
			t.Fatal("a does not own it")
		}
		b := join(t, m, "b")
		time.Sleep(time.Minute)
		if o, ok = a.Owns(cluster); !ok || !o.Valid() {
			t.Fatal("a does not own it any more")
		}
		a.m.Pause()
		var invalid, taken time.Time
		for taken.IsZero() {
			time.Sleep(50 * time.Millisecond)
			if invalid.IsZero() && !o.Valid() {
				invalid = time.Now()
			}
			if another, ok := b.Owns(cluster); ok && another.Valid() {
				taken = time.Now()
			}
		}
		if invalid.IsZero() || taken.Sub(invalid) < OwnerMargin-50*time.Millisecond {
			t.Errorf("it was not valid at %v, and another's at %v", invalid, taken)
		}
		_, err := s.Update(t.Context(), "late", nil, func(v *View) error {
			v.Fence(o.Fence())
			return names(s).Set(v, "a", "late")
		})
		isError(t, "a late write", err, ErrFenced)
		a.m.Resume()
		time.Sleep(time.Minute)
		select {
		case <-o.Lost():
		default:
			t.Error("it was not told that it is lost")
		}
		// It is a member again, and gets its cluster back.
		equal(t, "it is the owner again", ownersOf(t, a, b)[cluster] == a, true)
	})
}

// B4: a failed claim is retried for as long as it takes.
func TestClaimsOutliveErrors(t *testing.T) {
	for name, fail := range map[string]func(m *storetest.Memory, err error){
		"before": func(m *storetest.Memory, err error) { m.Before(fails(err, "commit")) },
		"after":  func(m *storetest.Memory, err error) { m.After(fails(err, "commit")) },
		"reads":  func(m *storetest.Memory, err error) { m.Before(fails(err, "read", "scan")) },
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
				a := join(t, m, "a")
				fail(a.m, errors.New("leader changed"))
				putCluster(t, s, "s/g/c")
				time.Sleep(time.Minute)
				a.m.Before(nil)
				a.m.After(nil)
				time.Sleep(2 * time.Second)
				equal(t, "it is owned", ownersOf(t, a)["s/g/c"] == a, true)
				if name != "reads" && a.wrong.Load() == 0 {
					t.Error("it was not reported")
				}
			})
		})
	}
}

// The first reads may fail too.
func TestMembershipBeginsAmongErrors(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		putCluster(t, s, "s/g/c")
		its := m.Another()
		its.Before(fails(errors.New("no leader"), "scan"))
		a := joinTrying(t, its, "a", nil)
		time.Sleep(time.Minute)
		equal(t, "what it owns and has not read", len(a.Owned()), 0)
		its.Before(nil)
		time.Sleep(2 * time.Second)
		equal(t, "what it owns", len(a.Owned()), 1)
	})
}

func TestClustersComeAndGo(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		a := join(t, m, "a")
		synctest.Wait()
		<-a.Changed() // that it is a member
		putCluster(t, s, "s/g/c")
		synctest.Wait()
		o, ok := a.Owns("s/g/c")
		if !ok {
			t.Fatal("it is not owned")
		}
		<-a.Changed()
		drop(t, s.Clusters, "s/g/c")
		synctest.Wait()
		select {
		case <-o.Lost():
			<-a.Changed()
		default:
			t.Error("a cluster that was deleted is still owned")
		}
		if _, ok := a.Owns("s/g/c"); ok || o.Valid() {
			t.Error("a cluster that was deleted is still owned")
		}
		time.Sleep(OwnerMargin)
		synctest.Wait()
		equal(t, "its owner's row is there", must(s.Owners.Get(t.Context(), "s/g/c")).Exists(), false)
		putCluster(t, s, "s/g/c")
		synctest.Wait()
		if again, ok := a.Owns("s/g/c"); !ok || again == o || again.Fence() == o.Fence() {
			t.Error("a cluster that was made again is not owned again")
		}
	})
}

// Rows that another process deletes are written again, with another ownership.
func TestRowsThatVanish(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		putCluster(t, s, "s/g/c")
		a := join(t, m, "a")
		synctest.Wait()
		o, _ := a.Owns("s/g/c")
		drop(t, s.Owners, "s/g/c")
		synctest.Wait()
		if again, ok := a.Owns("s/g/c"); !ok || again == o || o.Valid() {
			t.Error("the ownership is what it was")
		}
		drop(t, s.Members, "a")
		time.Sleep(time.Minute)
		equal(t, "a is the owner", ownersOf(t, a)["s/g/c"] == a, true)
		equal(t, "the members", a.knows(), []string{"a"})
	})
}

// A claim whose outcome its replica did not get, and that it does not want any more, does not keep
// others from the cluster.
func TestStrayClaim(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		a := join(t, m, "a")
		b := join(t, m, "b")
		synctest.Wait() // until both have joined
		cluster := chosen("b")
		update(t, s, func(v *View) error {
			return s.Owners.Lease(v, cluster, Member{"a", a.lease.ID()}, a.lease)
		})
		putCluster(t, s, cluster)
		time.Sleep(5 * time.Second)
		equal(t, "b is the owner", ownersOf(t, a, b)[cluster] == b, true)
	})
}

// With any failures, pauses and kills no cluster has two owners, and in the end each has one.
func TestOwnersInAStorm(t *testing.T) {
	for range 10 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func storm(t *testing.T, random *rand.Rand) {
	m, s := newMemory()
	for i := range 12 {
		putCluster(t, s, fmt.Sprint("s/g/c", i))
	}
	var all []*replica
	for i := range 3 {
		all = append(all, join(t, m, fmt.Sprint("r", i)))
	}
	wrong := errors.New("no leader")
	for range 300 {
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		ownersOf(t, all...)
		r := all[random.IntN(len(all))]
		switch random.IntN(9) {
		case 0:
			r.m.Pause()
		case 1:
			r.m.Resume()
		case 2:
			r.m.Before(func(storetest.Call) error { return wrong })
		case 3:
			r.m.Before(nil)
			r.m.After(nil)
		case 4:
			r.m.After(func(storetest.Call) error { return wrong })
		case 5:
			r.m.Break()
		case 6:
			if len(all) < 6 {
				all = append(all, join(t, m, fmt.Sprint("r", len(all))))
			}
		case 7:
			if random.IntN(10) == 0 {
				r.m.Kill()
			}
		case 8:
			if h, err := m.Health(t.Context()); err == nil {
				_ = m.Compact(t.Context(), h.Revision)
			}
		}
	}
	for _, r := range all {
		r.m.Resume()
		r.m.Before(nil)
		r.m.After(nil)
	}
	all = append(all, join(t, m, "last")) // if all were killed
	time.Sleep(time.Minute)
	equal(t, "those of 12 that are owned", len(ownersOf(t, all...)), 12)
}
