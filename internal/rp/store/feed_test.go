package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// counted counts how often a Backend is followed.
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
				s.Credentials.Sync(ctx, cluster+"/", func(Row[Credential]) { heard.Add(1) }, nil, nil)
			})
		}
		waited := make(chan error, 1)
		go func() {
			_, err := s.Tokens.Wait(t.Context(), "s/g/c00/token", Row[string].Exists)
			waited <- err
		}()
		synctest.Wait()
		update(t, s, func(v *View) error {
			if err := s.Tokens.Set(v, "s/g/c00/token", "x"); err != nil {
				return err
			}
			return s.Credentials.Set(v, "s/g/c07/one", Credential{})
		})
		if err := <-waited; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if got := heard.Load(); got != 1 {
			t.Errorf("%d were told of a credential of one cluster", got)
		}
		if got := b.follows.Load(); got != 1 {
			t.Errorf("the store is followed %d times", got)
		}
	})
}

// A listener that is slow reads its rows again instead of having the process hold all changes.
func TestASlowListenerReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(storetest.NewMemory())
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
		if got := fmt.Sprint(seen); got != fmt.Sprintf("map[p/a:0 p/b:%d]", 2*maxHeld) {
			t.Error(got)
		}
	})
}
