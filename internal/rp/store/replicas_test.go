package store

import (
	"fmt"
	"testing"
	"time"
)

// Index, Seen and Membership of two replicas on an etcd: what the tests in memory show holds there.
func TestReplicasOnEtcd(t *testing.T) {
	b := embedded(t, t.TempDir(), Options{NoSync: true})
	s := New(b)
	for i := range 20 {
		putCluster(t, s, fmt.Sprint("s/g/c", i))
		putNode(t, s, fmt.Sprint("s/g/c0/n", i), node("n", int64(i)))
	}
	x := NewIndex(s)
	seen := NewSeen(s, x)
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare(t, s, x)
	keepUp(t, x)
	member := func(name string) (*Membership, func()) {
		m := NewMembership(s, name)
		return m, background(t, m.Run)
	}
	a, leave := member("a")
	eventually(t, func() bool { return len(a.Owned()) == 20 })
	c, _ := member("b")
	eventually(t, func() bool { return len(c.Owned()) > 0 && len(a.Owned())+len(c.Owned()) == 20 })
	owned, _ := c.Owns(c.Owned()[0])
	if !owned.Valid() {
		t.Error("an owner is not valid")
	}
	_, err := s.Update(t.Context(), "fenced", nil, func(v *View) error {
		v.Fence(owned.Fence())
		return names(s).Set(v, "a", "fenced")
	})
	if err != nil {
		t.Errorf("an owner cannot write: %v", err)
	}
	leave()
	eventually(t, func() bool { return len(c.Owned()) == 20 })

	now := time.Now()
	seen.Note("s/g/c0/n0", now)
	if err := seen.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := dropNode(t, s, "s/g/c0/n1")
	eventually(t, func() bool { return x.Revision() >= last })
	compare(t, s, x)
	other := NewIndex(s)
	another := NewSeen(s, other)
	if err := other.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := another.Last("s/g/c0/n0"); !got.Equal(now.Truncate(time.Minute)) {
		t.Errorf("it was seen at %v, not %v", got, now)
	}
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 30 s")
		}
	}
}
