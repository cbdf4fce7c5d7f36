package recent

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// What was used last is there with the value that it was given last, whatever came between; and
// there is never much more.
func TestCache(t *testing.T) {
	t.Parallel()
	const least, keys = 20, 100
	g := rand.New(rand.NewPCG(1, 2))
	c := New[int, int](least)
	var used []int // the last one last
	last := map[int]int{}
	for n := range 100_000 {
		key := g.IntN(keys)
		recently := slices.Contains(used[max(0, len(used)-least):], key)
		value, there := last[key], false
		switch g.IntN(4) {
		case 0:
			value = n
			c.Put(key, value)
		case 1:
			c.Change(key, func(was int) int {
				if recently && was != last[key] {
					t.Fatalf("%d is %d, not %d", key, was, last[key])
				}
				value = n
				return n
			})
		default:
			var got int
			if got, there = c.Get(key); recently && !there || there && got != value {
				t.Fatalf("%d is %d (%t), not %d", key, got, there, value)
			}
			if !there {
				continue
			}
		}
		last[key] = value
		used = append(slices.DeleteFunc(used, func(k int) bool { return k == key }), key)
		if size := c.Len(); size > 2*least {
			t.Fatalf("%d values", size)
		}
	}
	if c.Len() < least {
		t.Errorf("%d values", c.Len())
	}
}

func TestCacheAtOnce(t *testing.T) {
	t.Parallel()
	c := New[int, int](10)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for n := range 1000 {
				c.Change(7, func(v int) int { return v + 1 })
				c.Put(100+n%5, n)
				c.Get(100 + n%7)
			}
		})
	}
	running.Wait()
	if got, _ := c.Get(7); got != 8000 {
		t.Errorf("counted %d", got)
	}
}
