package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// Whatever has changed, with keys of which many have the same hash: what is found is the last entry
// of its key, and every key is found that is the last one of its hash.
func TestPoints(t *testing.T) {
	p := newPoints()
	p.hash = func(key string) uint64 { return uint64(key[len(key)-1]) }
	random := rand.New(rand.NewPCG(1, 2))
	there, last := map[string]*entry{}, map[uint64]string{}
	for range 2000 {
		var changes []changed
		for range random.IntN(5) {
			key := fmt.Sprintf("s/g/c/%02d", random.IntN(40))
			c := changed{table: []string{nodesTable, statusTable}[random.IntN(2)], key: key}
			if random.IntN(3) > 0 {
				c.entry = &entry{}
				c.entry.join(key, "", "", "", "")
				last[p.hash(key)] = key
			} else if last[p.hash(key)] == key {
				delete(last, p.hash(key))
			}
			there[key] = c.entry
			changes = append(changes, c, changed{table: clustersTable, key: key})
		}
		p.follow(changes)
		for key, want := range there {
			got := p.find(key)
			if got != nil && got != want || got == nil && last[p.hash(key)] == key {
				t.Fatalf("%s is %v, not %v", key, got, want)
			}
		}
	}
	if p.find("s/g/c/none") != nil {
		t.Error("what was never there was found")
	}
}

// Who reads while changes come has one of the states that there were, and with a revision its node.
func TestPointsWhileTheyChange(t *testing.T) {
	s := New(storetest.NewMemory())
	x := NewIndex(s)
	var running sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		running.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				before := x.Revision()
				if row, err := x.Node("s/g/c/n"); err != nil || row.Revision < before {
					t.Errorf("at %d the node is that of %d: %v", before, row.Revision, err)
					return
				}
			}
		})
	}
	for i := range 300 {
		putNode(t, s, "s/g/c/n", node("n", int64(i)))
		if err := x.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	running.Wait()
}
