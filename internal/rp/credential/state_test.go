package credential

import (
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The states of a credential over time.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	since, soon, expires := now.Add(-time.Second), now.Add(time.Minute), now.Add(time.Hour)
	just, longAgo := now.Add(-time.Second), now.Add(-Grace)
	end := store.Revoking
	for _, tt := range []struct {
		state          string
		since, expires time.Time
		issued         *time.Time
		wanted         bool
		want           string
		next           time.Time
	}{
		{store.Pending, since, expires, nil, true, store.Pending, expires},
		{store.Pending, since, expires, nil, false, end, time.Time{}},
		{store.Pending, since, now, nil, true, end, time.Time{}},
		{store.Live, now.Add(-Joining), expires, nil, true, store.Live, expires},
		{store.Live, since, expires, nil, false, end, time.Time{}},
		{store.Live, since, now, nil, true, end, time.Time{}},
		{store.Consumed, since, expires, nil, false, store.Consumed, since.Add(Joining)},
		{store.Consumed, since, soon, nil, true, store.Consumed, soon},
		{store.Consumed, since, expires, &just, true, store.Consumed, just.Add(Grace)},
		{store.Consumed, since, expires, &longAgo, true, end, time.Time{}},
		{store.Consumed, now.Add(-Joining), expires, nil, true, end, time.Time{}},
		{store.Consumed, now.Add(-Joining), expires, &just, true, end, time.Time{}},
		{store.Consumed, since, now, &just, true, end, time.Time{}},
		{end, since, expires, &just, true, end, time.Time{}},
		{end, now.Add(-Joining), now, nil, false, end, time.Time{}},
	} {
		c := store.Credential{
			State: tt.state, Since: tt.since, Expires: tt.expires, Issued: tt.issued,
		}
		if got, next := Due(c, tt.wanted, now); got != tt.want || !next.Equal(tt.next) {
			t.Errorf("%+v: %s until %s", tt, got, next)
		}
		if before, _ := Due(c, tt.wanted, tt.next.Add(-1)); !tt.next.IsZero() && before != tt.want {
			t.Errorf("%+v changes before", tt)
		}
		if then, _ := Due(c, tt.wanted, tt.next); !tt.next.IsZero() && then != end {
			t.Errorf("%+v does not change in time", tt)
		}
	}
}

// Each request in each state of a credential: only the first of the right machine for the right
// node, and that machine again.
func TestDecide(t *testing.T) {
	t.Parallel()
	states := []string{store.Pending, store.Live, store.Consumed, store.Revoking}
	for _, known := range []bool{true, false} {
		for _, state := range states {
			for _, node := range []string{"n", "other", ""} {
				for _, key := range []string{"first", "second"} {
					for _, flaw := range []string{"", "it has subject alternative names"} {
						c := store.Credential{Node: "s/g/c/n", State: state}
						if state == store.Consumed {
							c.KeyHash = "first"
						}
						a := Application{Node: node, KeyHash: key, Flaw: flaw}
						row := store.Row[store.Credential]{Value: c}
						if known {
							row.Revision = 1
						}
						why := Decide(a, row)
						want := known && flaw == "" && node == "n" &&
							(state == store.Live || state == store.Consumed && key == "first")
						if (why == "") != want {
							t.Errorf("known=%v %s node=%q key=%s flaw=%q: %q",
								known, state, node, key, flaw, why)
						}
					}
				}
			}
		}
	}
}
