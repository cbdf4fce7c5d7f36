package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// routed is a replica that reaches clusters while it has a route, and works in those it owns.
type routed struct {
	*replica
	route atomic.Bool
	tries atomic.Int64
}

func joinRouted(t *testing.T, m *storetest.Memory, name string, route bool) *routed {
	r := &routed{}
	r.route.Store(route)
	r.replica = joinTrying(t, m.Another(), name, func(context.Context, string) error {
		switch n := r.tries.Add(1); {
		case r.route.Load():
			return nil
		case n == 1:
			panic("a fault")
		}
		return errors.New("no route")
	})
	background(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			for _, cluster := range r.Owned() {
				r.Report(cluster, r.route.Load())
			}
			Pause(ctx, time.Second)
		}
	})
	return r
}

// N10: an owner that does not reach its cluster loses it to a replica that does, and gets it back
// when it reaches it again. A cluster that no replica reaches stays with its first choice, and is
// seldom tried.
func TestOwnersReachTheirClusters(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		cluster := chosen("a")
		a, b := joinRouted(t, m, "a", false), joinRouted(t, m, "b", false)
		time.Sleep(time.Minute)
		putCluster(t, s, cluster)
		synctest.Wait()
		owned, first := a.Owns(cluster)
		if !first {
			t.Fatal("the first choice does not own it")
		}
		time.Sleep(time.Hour)
		if again, _ := a.Owns(cluster); again != owned || !owned.Valid() || b.tries.Load() > 8 {
			t.Errorf("without a route: it is owned again: %t, b has tried %d times",
				again != owned, b.tries.Load())
		}
		owner := func(when string, want *routed) {
			t.Helper()
			time.Sleep(tryAgain + time.Minute + OwnerMargin)
			got := ownersOf(t, a.replica, b.replica)
			equal(t, when+", it is the owner", got[cluster] == want.replica, true)
		}
		b.route.Store(true)
		owner("when b reaches it", b)
		a.route.Store(true)
		owner("when both reach it", a)
		a.route.Store(false)
		b.route.Store(false)
		owner("when none reaches it any more", a)
		b.route.Store(true)
		owner("when b reaches it again", b)
		b.stop()
		time.Sleep(MemberTTL)
		equal(t, "a is the owner when b has left", ownersOf(t, a.replica)[cluster] == a.replica, true)
		drop(t, s.Clusters, cluster)
		time.Sleep(2 * time.Minute)
		equal(t, "rows of a cluster that is gone", len(rowsIn(t, s.Reaches)), 0)
	})
}
