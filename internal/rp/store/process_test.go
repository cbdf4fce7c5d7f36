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
		_, err := s.Lacking(t.Context(), nil)
		refused(t, "what processes lack without any row", err, "")
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
		equal(t, "rows that are left", len(rowsIn(t, s.Processes)), 0)
	})
}

// The row of a live process stays while the store is full, and has a new clock afterwards.
func TestProcessInAFullStore(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		its, said := m.Another(), 0
		presence := &Presence{Store: New(its), Name: "a", Process: Process{Role: "all"}, Now: time.Now,
			Say: func(error) { said++ }}
		its.Before(fails(ErrFull, "commit"))
		defer background(t, presence.Run)()
		time.Sleep(time.Minute)
		age := func(when string, rows int, most time.Duration) {
			t.Helper()
			synctest.Wait()
			list := rowsIn(t, s.Processes)
			if len(list) != rows {
				t.Fatalf("%s: %d rows", when, len(list))
			}
			if rows > 0 && time.Since(list[0].Value.Clock) > most {
				t.Errorf("%s: a clock of %v", when, list[0].Value.Clock)
			}
		}
		age("full from the start", 0, 0)
		its.Before(nil)
		time.Sleep(10 * time.Second)
		age("with room", 1, clockInterval)
		its.Before(fails(ErrFull, "commit"))
		said = 0
		time.Sleep(5*clockInterval + time.Second)
		age("full", 1, 6*clockInterval)
		equal(t, "failures told", said, 5)
		its.Before(nil)
		time.Sleep(clockInterval)
		age("with room again", 1, clockInterval)
	})
}
