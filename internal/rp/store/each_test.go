package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// counter counts the transactions of a Backend, and refuses those of more writes than it takes.
type counter struct {
	Backend
	commits, takes int
}

func (c *counter) Commit(
	ctx context.Context, conditions []Condition, writes []Write,
) (int64, error) {
	if c.takes > 0 && len(writes) > c.takes {
		return 0, ErrTooLarge
	}
	c.commits++
	return c.Backend.Commit(ctx, conditions, writes)
}

// each are keys of nodes.
func each(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("s/g/c/n%03d", i))
	}
	return keys
}

// Changes of many keys are written in few transactions, by their number and by their size; a change
// that fails by itself keeps no other from being made.
func TestUpdateEach(t *testing.T) {
	bad := errors.New("cannot be decided")
	for what, tt := range map[string]struct {
		keys, bytes, writes, takes, want int
	}{
		"few":                           {10, 10, 1, 0, 1},
		"as many as one takes":          {128, 10, 1, 0, 1},
		"many":                          {300, 10, 1, 0, 3},
		"several rows each":             {60, 10, 5, 0, 3},
		"large ones":                    {60, 100 << 10, 1, 0, 5},
		"a store that takes fewer rows": {64, 10, 1, 16, 4},
	} {
		t.Run(what, func(t *testing.T) {
			b := &counter{Backend: storetest.NewMemory(), takes: tt.takes}
			s := New(b)
			keys := each(tt.keys)
			one := func(v *View, key string) error {
				row, err := s.Nodes.In(v, key)
				if err != nil || row.Exists() {
					return errors.Join(err, bad)
				}
				reason := strings.Repeat("x", tt.bytes)
				for i := range tt.writes - 1 {
					if err := s.Status.Set(v, fmt.Sprint(key, i), flexnode.Status{}); err != nil {
						return err
					}
				}
				return s.Nodes.Put(v, key, flexnode.Node{UID: key, Reason: reason})
			}
			ahead := func(key string) []string { return []string{s.Nodes.Key(key)} }
			done, err := s.UpdateEach(t.Context(), keys, Each{"each", ahead, one})
			if err != nil || done != tt.keys || b.commits != tt.want {
				t.Errorf("%d of %d in %d transactions, want %d: %v",
					done, tt.keys, b.commits, tt.want, err)
			}
			rows, _, err := s.Nodes.List(t.Context(), "")
			if err != nil || len(rows) != tt.keys {
				t.Errorf("%d rows: %v", len(rows), err)
			}
			again := append(each(tt.keys+1), "s/g/c/other")
			done, err = s.UpdateEach(t.Context(), again, Each{"each", ahead, one})
			if done != 2 || !errors.Is(err, bad) {
				t.Errorf("%d beside those that fail: %v", done, err)
			}
		})
	}
}

// One change that no transaction takes is left out and told of.
func TestUpdateEachLeavesOutWhatIsTooLarge(t *testing.T) {
	s := New(storetest.NewMemory())
	keys := each(9)
	done, err := s.UpdateEach(t.Context(), keys, Each{One: func(v *View, key string) error {
		n := flexnode.Node{UID: key}
		if key == keys[4] {
			n.Reason = strings.Repeat("x", kv.MaxBytes)
		}
		return s.Nodes.Put(v, key, n)
	}})
	if done != 8 || !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), keys[4]) {
		t.Errorf("%d, %v", done, err)
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
	done, err := s.UpdateEach(t.Context(), each(3), Each{One: one})
	row, _ := s.Nodes.Get(t.Context(), each(1)[0])
	if done != 3 || err != nil || row.Value.UID != "ours" || row.Value.Reason != "of others" {
		t.Errorf("%d, %v: %+v", done, err, row)
	}
	fence.Revision = 7
	if done, err := s.UpdateEach(t.Context(), each(3), Each{One: one}); done != 0 ||
		!errors.Is(err, ErrFenced) {
		t.Errorf("without its fence: %d, %v", done, err)
	}
	fence.Revision = 0
	m.Kill()
	if done, err := s.UpdateEach(t.Context(), each(300), Each{One: one}); done != 0 ||
		!errors.Is(err, storetest.ErrKilled) || strings.Count(err.Error(), "\n") > 2 {
		t.Errorf("without a store: %d, %v", done, err)
	}
}
