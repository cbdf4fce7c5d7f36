package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// lasting is a Backend whose Follow goes on by itself after a break, from where it was, as the
// watch of etcd's client does.
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

// A store that was restored from a backup under running replicas is behind them: all is read again,
// also rows that have changed at revisions that the index had seen.
func TestIndexOfAStoreThatGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		putNode(t, New(m), "s/g/c/a", node("a", 1))
		old := m.Copy()
		for i := range int64(5) {
			putNode(t, New(m), "s/g/c/b", node("b", i+1))
		}
		x, _ := following(t, New(m))
		putNode(t, New(old), "s/g/c/a", node("a", 7))
		m.Become(old)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, there := x.Poll("s/g/c/b"); there {
			t.Error("a node that is not there any more is told of")
		}
		if row, err := x.Node("s/g/c/a"); err != nil || row.Value.Revision != 7 {
			t.Errorf("%+v, %v", row, err)
		}
	})
}

// As for the index, so for each follower of a table: also a row that has another value at the same
// revision is reported again.
func TestSyncOfAStoreThatGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		set(t, New(m), "a", "1")
		set(t, New(m), "same", "1")
		old := m.Copy()
		at := set(t, New(m), "a", "2")
		for range 5 {
			set(t, New(m), "b", "1")
		}
		l, cancel := synced(t, m, "")
		defer cancel()
		l.want(t, "[a=2 b=1 same=1 ready]")
		if again := set(t, New(old), "a", "3"); again != at {
			t.Fatalf("a is another one at revision %d, not %d", again, at)
		}
		m.Become(old)
		time.Sleep(time.Minute)
		l.want(t, "[a=3 same=1 -b]")
		set(t, New(old), "a", "4")
		l.want(t, "[a=4]")
	})
}

// A caller that waits for a row learns that the store has gone back, and reads what the row is
// there: also when the connection that is followed does not break because of it.
func TestWaitOnAStoreThatGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		set(t, New(m), "a", "1")
		old := m.Copy()
		set(t, New(m), "a", "2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan Row[string], 1)
		go func() {
			s := New(lasting{m})
			following(t, s)
			row, err := s.PodCIDRs.Wait(ctx, "a", func(r Row[string]) bool {
				return r.Value == "1"
			})
			if err != nil {
				t.Error(err)
			}
			got <- row
		}()
		synctest.Wait()
		m.Become(old)
		if row := <-got; row.Value != "1" {
			t.Errorf("it waits for a row that is there: %+v", row)
		}
		if ctx.Err() != nil {
			t.Error("it has waited until its end")
		}
	})
}
