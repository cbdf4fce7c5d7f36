package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// told collects the reports of Sync.
type told []string

func (l *told) see(r Row[string]) {
	if !r.Exists() {
		*l = append(*l, "-"+r.Key)
		return
	}
	*l = append(*l, r.Key+"="+r.Value)
}

func (l *told) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	equal(t, "the keys", fmt.Sprint([]string(*l)), want)
	*l = nil
}

// synced runs Sync on a connection of its own.
func synced(t *testing.T, m Backend, prefix string) (l *told, stop func()) {
	l = &told{}
	s := New(m)
	following(t, s)
	stop = background(t, func(ctx context.Context) {
		names(s).Sync(ctx, prefix, l.see, func() { *l = append(*l, "ready") },
			func(err error) { t.Error(err) })
	})
	return l, stop
}

func TestSyncTellsWhatIsAndWhatChanges(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		set(t, s, "p/a", "1")
		set(t, s, "q/a", "1")
		l, stop := synced(t, m.Another(), "p/")
		l.want(t, "[p/a=1 ready]")
		set(t, s, "p/b", "2")
		set(t, s, "q/b", "2")
		drop(t, names(s), "p/a")
		l.want(t, "[p/b=2 -p/a]")
		stop()
		set(t, s, "p/b", "3")
		l.want(t, "[]")
	})
}

// After a break Sync continues from the last change, and does not read everything again (M22).
func TestSyncGoesOnAfterABreak(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		set(t, s, "a", "1")
		its := m.Another()
		l, _ := synced(t, its, "")
		l.want(t, "[a=1 ready]")
		before := m.Reads()
		cutOff(its)
		set(t, s, "b", "2")
		set(t, s, "b", "3")
		drop(t, names(s), "a")
		time.Sleep(time.Minute)
		l.want(t, "[]")
		its.Before(nil)
		time.Sleep(2 * followPause)
		l.want(t, "[b=2 b=3 -a]")
		equal(t, "what it has read", m.Reads()-before, 0)
	})
}

// If the changes are not kept, Sync reads everything again, even if that fails at first.
func TestSyncReadsAgainWhatIsNotKept(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		set(t, s, "same", "1")
		set(t, s, "changed", "1")
		set(t, s, "gone", "1")
		its := m.Another()
		l, _ := synced(t, its, "")
		l.want(t, "[changed=1 gone=1 same=1 ready]")
		cutOff(its)
		set(t, s, "changed", "2")
		drop(t, names(s), "gone")
		set(t, s, "new", "1")
		last := set(t, s, "new", "2")
		must(0, m.Compact(t.Context(), last))
		scans := map[string]int{} // by prefix
		its.Before(func(c storetest.Call) error {
			if c.Op == "scan" {
				if scans[c.Keys[0]]++; scans[c.Keys[0]] < 3 {
					return errors.New("no leader")
				}
			}
			return nil
		})
		time.Sleep(time.Minute)
		l.want(t, "[changed=2 new=2 -gone]")
		equal(t, "the scans", scans, map[string]int{indexed: 3, names(s).prefix: 3})
		set(t, s, "after", "1")
		l.want(t, "[after=1]")
	})
}

func TestSyncTriesItsFirstReadingAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		wrong, said := errors.New("wrong"), 0
		m.Before(func(storetest.Call) error { return wrong })
		ctx, cancel := context.WithCancel(t.Context())
		names(s).Sync(ctx, "", func(Row[string]) {}, cancel, func(err error) {
			if said++; said == 3 {
				m.Before(nil)
			}
			isError(t, "what is said", err, wrong)
		})
		equal(t, "how often it is said", said, 3)
	})
}
