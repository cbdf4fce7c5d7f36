package store

import (
	"errors"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// What is written with a lease vanishes when it is closed or not kept, and not before.
func (s subject) leases(t *testing.T, b Backend) {
	ctx := t.Context()
	for name, end := range map[string]func(*testing.T, Backend, Lease){
		"closed": func(t *testing.T, _ Backend, l Lease) {
			if err := errors.Join(l.Close(), l.Close()); err != nil {
				t.Error(err)
			}
		},
		"abandoned": func(_ *testing.T, holder Backend, l Lease) { s.abandon(holder, l) },
	} {
		t.Run(name, func(t *testing.T) {
			holder := b
			if m, ok := b.(*storetest.Memory); ok {
				holder = m.Another()
			}
			asked := time.Now()
			l, err := holder.Lease(ctx, 2*time.Second)
			if err != nil || l.ID() == 0 || !l.Until().After(asked) {
				t.Fatalf("%+v, %v", l, err)
			}
			key := "leases/" + name
			start := write(t, b, Write{Key: key, Value: []byte("1"), Lease: l.ID()},
				Write{Key: key + "/freed", Value: []byte("1"), Lease: l.ID()})
			put(t, b, key+"/freed",
				"2") // another write takes it off the lease
			for first := l.Until(); !l.Until().After(first); { // until it was kept
				time.Sleep(time.Millisecond)
			}
			if got := values(t, b, key); got[0] != "1" {
				t.Error("it has vanished while its lease is kept")
			}
			end(t, holder, l)
			followUntil(t, b, key, start, func(events []Event, _ int64) bool {
				return len(events) > 1 && events[len(events)-1].Deleted
			})
			if name == "closed" { // who is dead learns nothing
				<-l.Done()
			}
			if got := values(t, b, key, key+"/freed"); got[0] != "-" || got[1] != "2" {
				t.Errorf("after the end: %s", got)
			}
			if name == "abandoned" && time.Now().Before(l.Until()) {
				t.Error("it has ended before its holder could know")
			}
			_, err = b.Commit(ctx, nil, []Write{{Key: key, Value: []byte("2"), Lease: l.ID()}})
			if err == nil || errors.Is(err, ErrConflict) {
				t.Errorf("a write with a lease that has ended: %v", err)
			}
		})
	}
}
