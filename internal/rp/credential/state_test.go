package credential

import (
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The whole table of a credential's states and what can be true of it.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, state := range []string{store.Pending, store.Live, store.Consumed, store.Revoking} {
		for _, wanted := range []bool{true, false} {
			for _, expired := range []bool{true, false} {
				for _, issued := range []string{"no", "just", "long ago"} {
					for _, old := range []bool{true, false} {
						c := store.Credential{
							State: state, Since: now.Add(-time.Second), Expires: now.Add(time.Hour),
						}
						if expired {
							c.Expires = now
						}
						if old {
							c.Since = now.Add(-Joining)
						}
						when := map[string]time.Time{
							"just": now.Add(-time.Second), "long ago": now.Add(-Grace),
						}[issued]
						if issued != "no" {
							c.Issued = &when
						}
						want := state
						switch state {
						case store.Pending, store.Live:
							if !wanted || expired {
								want = store.Revoking
							}
						case store.Consumed:
							if expired || old || issued == "long ago" {
								want = store.Revoking
							}
						}
						got, next := Due(c, wanted, now)
						if got != want {
							t.Errorf("%s wanted=%v expired=%v issued=%s old=%v: %s, want %s",
								state, wanted, expired, issued, old, got, want)
						}
						checkNext(t, c, wanted, now, next)
					}
				}
			}
		}
	}
}

// checkNext checks that the state changes at the time that Due says, and not before.
func checkNext(t *testing.T, c store.Credential, wanted bool, now, next time.Time) {
	t.Helper()
	state, _ := Due(c, wanted, now)
	if next.IsZero() {
		if state == c.State && state != store.Revoking {
			t.Errorf("%+v never ends", c)
		}
		return
	}
	if before, _ := Due(c, wanted, next.Add(-time.Nanosecond)); before != c.State {
		t.Errorf("%+v changes before %s", c, next)
	}
	if then, _ := Due(c, wanted, next); then == c.State {
		t.Errorf("%+v does not change at %s", c, next)
	}
}

// Each state of a credential by each request: only the first of the right machine for the right
// node, and that machine again.
func TestDecide(t *testing.T) {
	t.Parallel()
	states := []string{store.Pending, store.Live, store.Consumed, store.Revoking}
	for _, known := range []bool{true, false} {
		for _, state := range states {
			for _, node := range []string{"n", "other", ""} {
				for _, key := range []string{"first", "second"} {
					for _, flaw := range []string{"", "it has alternative names"} {
						c := store.Credential{Node: "s/g/c/n", State: state}
						if state == store.Consumed {
							c.KeyHash = "first"
						}
						a := Application{Node: node, KeyHash: key, Flaw: flaw}
						approved, why := Decide(a, c, known)
						want := known && flaw == "" && node == "n" &&
							(state == store.Live || state == store.Consumed && key == "first")
						if approved != want || approved != (why == "") {
							t.Errorf("known=%v %s node=%q key=%s flaw=%q: %v %q",
								known, state, node, key, flaw, approved, why)
						}
					}
				}
			}
		}
	}
}
