package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// counted counts the Follow calls of a Backend.
type counted struct {
	Backend
	follows atomic.Int64
}

func (c *counted) Follow(ctx context.Context, prefix string, after int64, see func(Batch)) error {
	c.follows.Add(1)
	return c.Backend.Follow(ctx, prefix, after, see)
}

// N18: index, membership, waits and the credentials of a hundred clusters follow the store once.
func TestAProcessFollowsTheStoreOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Backend: storetest.NewMemory()}
		s := New(b)
		following(t, s)
		background(t, NewMembership(s, "a").Run)
		var heard atomic.Int64
		for i := range 100 {
			cluster := fmt.Sprintf("s/g/c%02d", i)
			putCluster(t, s, cluster)
			background(t, func(ctx context.Context) {
				hear := func(Row[Credential]) { heard.Add(1) }
				s.Credentials.Sync(ctx, cluster+"/", hear, nil, nil)
			})
		}
		waited := make(chan error, 1)
		go func() {
			_, err := s.Tokens.Wait(t.Context(), "s/g/c00/token", Row[string].Exists)
			waited <- err
		}()
		synctest.Wait()
		update(t, s, func(v *View) error {
			return errors.Join(s.Tokens.Set(v, "s/g/c00/token", "x"),
				s.Credentials.Set(v, "s/g/c07/one", Credential{}))
		})
		isError(t, "the wait", <-waited, nil)
		time.Sleep(time.Minute)
		equal(t, "who was told of a credential of one cluster", heard.Load(), 1)
		equal(t, "how often the store is followed", b.follows.Load(), 1)
	})
}

// A slow listener reads its rows again; the process does not hold all changes for it.
func TestASlowListenerReadsAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *storetest.Memory, s *Store) {
		following(t, s)
		slow, seen := make(chan struct{}), map[string]string{}
		background(t, func(ctx context.Context) {
			names(s).Sync(ctx, "p/", func(r Row[string]) {
				<-slow
				seen[r.Key] = r.Value
			}, nil, nil)
		})
		set(t, s, "p/a", "0")
		synctest.Wait()
		for i := range 2*maxHeld + 1 {
			set(t, s, "p/b", fmt.Sprint(i))
		}
		close(slow)
		synctest.Wait()
		equal(t, "what was seen", fmt.Sprint(seen), fmt.Sprintf("map[p/a:0 p/b:%d]", 2*maxHeld))
	})
}

// lasting is a Backend whose Follow resumes after a break, like the watch of etcd's client.
type lasting struct{ *storetest.Memory }

func (l lasting) Follow(ctx context.Context, prefix string, after int64, see func(Batch)) error {
	for {
		err := l.Memory.Follow(ctx, prefix, after, func(b Batch) {
			after = max(after, b.Revision)
			see(b)
		})
		if !errors.Is(err, storetest.ErrBroken) {
			return err
		}
	}
}

// A store that was restored under running replicas is behind them: everything is read again, also
// rows that have changed at revisions that the index had seen.
func TestIndexOfAStoreThatGoesBack(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		putNode(t, s, "s/g/c/a", node("a", 1))
		old := m.Copy()
		for i := range int64(5) {
			putNode(t, s, "s/g/c/b", node("b", i+1))
		}
		x, _ := following(t, s)
		putNode(t, New(old), "s/g/c/a", node("a", 7))
		m.Become(old)
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "a node that is not there any more is found", polled(x, "s/g/c/b"), false)
		equal(t, "the revision of the node", must(x.Node("s/g/c/a")).Value.Revision, 7)
	})
}

// The same holds for each follower of a table: a row with another value at the same revision is
// reported again.
func TestSyncOfAStoreThatGoesBack(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		set(t, s, "a", "1")
		set(t, s, "same", "1")
		old := m.Copy()
		at := set(t, s, "a", "2")
		for range 5 {
			set(t, s, "b", "1")
		}
		l, _ := synced(t, m, "")
		l.want(t, "[a=2 b=1 same=1 ready]")
		equal(t, "the revision of another a", set(t, New(old), "a", "3"), at)
		m.Become(old)
		time.Sleep(time.Minute)
		l.want(t, "[a=3 same=1 -b]")
		set(t, New(old), "a", "4")
		l.want(t, "[a=4]")
	})
}

// A caller that waits for a row learns that the store has gone back, and reads the row's new value,
// even if that does not break the followed connection.
func TestWaitOnAStoreThatGoesBack(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		set(t, s, "a", "1")
		old := m.Copy()
		set(t, s, "a", "2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan Row[string], 1)
		go func() {
			its := New(lasting{m})
			following(t, its)
			row, err := its.PodCIDRs.Wait(ctx, "a", func(r Row[string]) bool {
				return r.Value == "1"
			})
			isError(t, "the wait", err, nil)
			got <- row
		}()
		synctest.Wait()
		m.Become(old)
		equal(t, "what waits for a row that is there", (<-got).Value, "1")
		equal(t, "it has waited until its end", ctx.Err() != nil, false)
	})
}
