package fair

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// visit is a request that goes through a gate, and stays until it leaves.
type visit struct {
	in   bool
	err  error
	done chan struct{}
}

func enter(g *Gate, c Class) *visit {
	v := &visit{done: make(chan struct{})}
	go func() {
		var p *Place
		if p, v.err = g.Enter(context.Background(), c, "s"); v.err == nil {
			v.in = true
			<-v.done
			p.Leave()
		}
	}()
	synctest.Wait()
	return v
}

func (v *visit) leave() { close(v.done); synctest.Wait() }

func load(g *Gate, c Class) [2]int {
	taken, waiting := g.Load(c)
	return [2]int{taken, waiting}
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForWrites: {2, 2, 5 * time.Second}})
		first, second := enter(g, ForWrites), enter(g, ForWrites)
		third, fourth := enter(g, ForWrites), enter(g, ForWrites)
		if refused := enter(g, ForWrites); third.in || fourth.in || !errors.Is(refused.err, ErrBusy) {
			t.Fatal("more are let in, or wait, than there are places")
		}
		equal(t, "the load", load(g, ForWrites), [2]int{2, 2})
		other := enter(g, ForReads)
		equal(t, "a class without a limit lets in", other.in, true)
		other.leave()
		first.leave()
		if !third.in || fourth.in {
			t.Error("the first that waits is not the first that is let in")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !errors.Is(fourth.err, ErrBusy) {
			t.Error("it waits for ever")
		}
		second.leave()
		third.leave()
		equal(t, "the load afterwards", load(g, ForWrites), [2]int{0, 0})
	})
}

// Nodes come first: while they wait, one request of each other class is let in, so that people are
// not shut out.
func TestNodesAreFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 10, 60 * time.Second}, ForReads: {3, 10, 60 * time.Second}})
		node, first := enter(g, ForNodes), enter(g, ForReads)
		waits, second := enter(g, ForNodes), enter(g, ForReads)
		if waits.in || second.in {
			t.Fatal("people are let in while nodes wait")
		}
		first.leave()
		equal(t, "people are let in while nodes wait", second.in, true)
		third := enter(g, ForReads)
		equal(t, "more people are let in while nodes wait", third.in, false)
		node.leave()
		if !waits.in || !third.in {
			t.Error("who waits is forgotten")
		}
		second.leave()
		third.leave()
		waits.leave()
	})
}

// A node that gives up waiting lets in those who waited because of it.
func TestGateWhenNodesGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 10, 5 * time.Second}, ForReads: {2, 10, 60 * time.Second}})
		node, first := enter(g, ForNodes), enter(g, ForReads)
		enter(g, ForNodes)
		second := enter(g, ForReads)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		equal(t, "who waits is let in", second.in, true)
		node.leave()
		first.leave()
		second.leave()
	})
}

// A request that waits for something else frees its place, and has one again afterwards.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 10, 60 * time.Second}})
		resting := must(g.Enter(context.Background(), ForNodes, "s"))
		resting.Rest(func() {
			other := enter(g, ForNodes)
			equal(t, "a place is free while its request rests", other.in, true)
			other.leave()
		})
		equal(t, "the load", load(g, ForNodes), [2]int{1, 0})
		resting.Leave()
		equal(t, "the load afterwards", load(g, ForNodes), [2]int{0, 0})
	})
}

func TestGateWhenCallersGo(t *testing.T) {
	g := NewGate(AtOnce{ForLists: {1, 1, 3600 * time.Second}})
	p := must(g.Enter(t.Context(), ForLists, "s"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Enter(gone, ForLists, "s"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.Leave()
	equal(t, "the load afterwards", load(g, ForLists), [2]int{0, 0})
}

// Subscriptions wait in turns: one with many requests neither delays others nor fills the queue.
func TestTurnsOfSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForLists: {1, 4, 60 * time.Second}})
		first := must(g.Enter(t.Context(), ForLists, "much"))
		var let []string // one at a time
		for _, subscription := range []string{"much", "much", "much", "much", "much", "a", "b"} {
			go func() {
				p, err := g.Enter(context.Background(), ForLists, subscription)
				if err != nil {
					let = append(let, "refused "+subscription)
					return
				}
				let = append(let, subscription)
				p.Leave()
			}()
			synctest.Wait()
		}
		first.Leave()
		synctest.Wait()
		equal(t, "who is refused or let in", strings.Join(let, ", "),
			"refused much, refused much, refused much, much, a, b, much")
		equal(t, "the load afterwards", load(g, ForLists), [2]int{0, 0})
	})
}

// A request that moves to another class waits for a place there, and has left the former one.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 1, time.Second}, ForNodeStore: {1, 1, time.Second}})
		other := enter(g, ForNodeStore)
		p := must(g.Enter(t.Context(), ForNodes, "s"))
		if err := p.Move(t.Context(), ForNodeStore); !errors.Is(err, ErrBusy) {
			t.Errorf("it is let in: %v", err)
		}
		p.Rest(func() {})
		p.Leave()
		other.leave()
		p, _ = g.Enter(t.Context(), ForNodes, "s")
		must(0, p.Move(t.Context(), ForNodeStore))
		equal(t, "the load of the former class", load(g, ForNodes), [2]int{0, 0})
		equal(t, "the load of the other class", load(g, ForNodeStore), [2]int{1, 0})
		p.Leave()
		equal(t, "the load afterwards", load(g, ForNodeStore), [2]int{0, 0})
	})
}

// equal reports what is other than it should be.
func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
