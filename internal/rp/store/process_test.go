package store

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A process has a row while it lives. A feature, such as a key that was read, is enabled once no
// live process lacks it, and a process whose clock is ahead knows its lead.
func TestProcesses(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		run := func(name string, p Process, ahead time.Duration) (*Presence, func()) {
			presence := &Presence{Store: New(m.Another()), Name: name, Process: p,
				Now: func() time.Time { return time.Now().Add(ahead) }, Say: func(err error) { t.Error(err) }}
			stop := background(t, presence.Run)
			synctest.Wait()
			return presence, stop
		}
		lack := func(want ...string) {
			t.Helper()
			got, err := s.Lacking(t.Context(), func(p Process) bool {
				return slices.Contains(p.Keys, "new")
			})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		}
		lack()
		right, stopRight := run("a", Process{Role: "front", Version: "1"}, 0)
		lack("a (front, 1)")
		ahead, stopAhead := run("b", Process{Role: "all", Version: "2", Keys: []string{"new"}},
			24*time.Hour)
		lack("a (front, 1)")
		time.Sleep(10 * clockInterval)
		synctest.Wait()
		if lead := ahead.Lead(); lead < 23*time.Hour || lead > 24*time.Hour || right.Lead() != 0 {
			t.Errorf("ahead by %v and by %v", lead, right.Lead())
		}
		for role, want := range map[string]int{"front": 1, "all": 1, "controller": 0} {
			equal(t, "processes of the role "+role, right.Live(role), want)
		}
		stopRight()
		lack()
		time.Sleep(2 * clockInterval)
		synctest.Wait()
		equal(t, "how far it is ahead, alone", ahead.Lead(), 0)
		stopAhead()
		if rows, _, err := s.Processes.List(t.Context(), ""); err != nil || len(rows) != 0 {
			t.Errorf("%d rows are left, %v", len(rows), err)
		}
	})
}
