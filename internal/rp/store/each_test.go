package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// A change that fails by itself, or that no transaction takes, keeps no other from being made.
func TestUpdateEach(t *testing.T) {
	s := New(storetest.NewMemory())
	bad := errors.New("cannot be decided")
	keys := []string{"a", "bad", "large", "b"}
	done, err := s.UpdateEach(t.Context(), keys, Each{
		Ahead: func(key string) []string { return []string{s.Nodes.Key(key)} },
		One: func(v *View, key string) error {
			n := flexnode.Node{UID: key}
			switch key {
			case "bad":
				return bad
			case "large":
				n.Reason = strings.Repeat("x", kv.MaxBytes)
			}
			return s.Nodes.Put(v, key, n)
		},
	})
	if done != 2 || !errors.Is(err, bad) || !errors.Is(err, ErrTooLarge) ||
		!strings.Contains(err.Error(), "change large") {
		t.Errorf("%d, %v", done, err)
	}
	if rows, _, err := s.Nodes.List(t.Context(), ""); err != nil || len(rows) != 2 {
		t.Errorf("%d rows: %v", len(rows), err)
	}
}

// Rows that others change meanwhile are decided on again; a fence that does not hold and a store
// that does not answer end it.
func TestUpdateEachBesideOthers(t *testing.T) {
	m := storetest.NewMemory()
	s := New(m)
	fence := Condition{Key: "/fence", Revision: 0}
	interfere := true
	one := func(v *View, key string) error {
		v.Fence(fence)
		row := s.Nodes.Row(v, key)
		if interfere {
			interfere = false
			update(t, s, func(v *View) error {
				return s.Nodes.Set(v, key, flexnode.Node{UID: key, Reason: "of others"})
			})
		}
		row.Value.UID = "ours"
		return s.Nodes.Put(v, key, row.Value)
	}
	keys := []string{"a", "b", "c"}
	done, err := s.UpdateEach(t.Context(), keys, Each{One: one})
	row, _ := s.Nodes.Get(t.Context(), "a")
	if done != 3 || err != nil || row.Value.UID != "ours" || row.Value.Reason != "of others" {
		t.Errorf("%d, %v: %+v", done, err, row)
	}
	fence.Revision = 7
	if done, err := s.UpdateEach(t.Context(), keys, Each{One: one}); done != 0 ||
		!errors.Is(err, ErrFenced) {
		t.Errorf("without its fence: %d, %v", done, err)
	}
	m.Kill()
	if done, err := s.UpdateEach(t.Context(), keys, Each{One: one}); done != 0 ||
		!errors.Is(err, storetest.ErrKilled) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("without a store: %d, %v", done, err)
	}
}
