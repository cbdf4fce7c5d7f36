package fair

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// enter goes through a gate in the background and stays until the returned function is called.
func enter(g *Gate, c Class) (in *atomic.Bool, leave func(), failed *atomic.Pointer[error]) {
	in, failed = &atomic.Bool{}, &atomic.Pointer[error]{}
	done := make(chan struct{})
	go func() {
		p, err := g.Enter(context.Background(), c, "s")
		if err != nil {
			failed.Store(&err)
			return
		}
		in.Store(true)
		<-done
		p.Leave()
	}()
	synctest.Wait()
	return in, func() { close(done); synctest.Wait() }, failed
}

func load(g *Gate, c Class) [2]int {
	taken, waiting := g.Load(c)
	return [2]int{taken, waiting}
}

func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForWrites: {2, 2, 5 * time.Second}})
		_, leaveA, _ := enter(g, ForWrites)
		_, leaveB, _ := enter(g, ForWrites)
		third, leaveC, _ := enter(g, ForWrites)
		fourth, leaveD, late := enter(g, ForWrites)
		_, _, refused := enter(g, ForWrites)
		if third.Load() || fourth.Load() || refused.Load() == nil ||
			!errors.Is(*refused.Load(), ErrBusy) {
			t.Fatal("more are let in, or wait, than there are places")
		}
		equal(t, "the load", load(g, ForWrites), [2]int{2, 2})
		other, leaveOther, _ := enter(g, ForReads)
		equal(t, "a class without a limit lets in", other.Load(), true)
		leaveOther()
		leaveA()
		if !third.Load() || fourth.Load() {
			t.Error("the first that waits is not the first that is let in")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if late.Load() == nil || !errors.Is(*late.Load(), ErrBusy) {
			t.Error("it waits for ever")
		}
		leaveB()
		leaveC()
		_ = leaveD // it never came in
		equal(t, "the load afterwards", load(g, ForWrites), [2]int{0, 0})
	})
}

// Nodes come first: while they wait, one request of each other class is let in, so that people are
// not shut out.
func TestNodesAreFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 10, 60 * time.Second}, ForReads: {3, 10, 60 * time.Second}})
		_, leaveNode, _ := enter(g, ForNodes)
		_, leaveFirst, _ := enter(g, ForReads)
		waits, leaveWaiting, _ := enter(g, ForNodes)
		second, leaveSecond, _ := enter(g, ForReads)
		if waits.Load() || second.Load() {
			t.Fatal("people are let in while nodes wait")
		}
		leaveFirst()
		equal(t, "people are let in while nodes wait", second.Load(), true)
		third, leaveThird, _ := enter(g, ForReads)
		equal(t, "more people are let in while nodes wait", third.Load(), false)
		leaveNode()
		if !waits.Load() || !third.Load() {
			t.Error("who waits is forgotten")
		}
		leaveSecond()
		leaveThird()
		leaveWaiting()
	})
}

// A node that gives up waiting lets in those who waited because of it.
func TestGateWhenNodesGiveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 10, 5 * time.Second}, ForReads: {2, 10, 60 * time.Second}})
		_, leaveNode, _ := enter(g, ForNodes)
		_, leaveFirst, _ := enter(g, ForReads)
		enter(g, ForNodes)
		second, leaveSecond, _ := enter(g, ForReads)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		equal(t, "who waits is let in", second.Load(), true)
		leaveNode()
		leaveFirst()
		leaveSecond()
	})
}

// A request that waits for something else frees its place, and has one again afterwards.
func TestRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 10, 60 * time.Second}})
		resting := must(g.Enter(context.Background(), ForNodes, "s"))
		resting.Rest(func() {
			in, leave, _ := enter(g, ForNodes)
			equal(t, "a place is free while its request rests", in.Load(), true)
			defer leave()
		})
		equal(t, "the load", load(g, ForNodes), [2]int{1, 0})
		resting.Leave()
		equal(t, "the load afterwards", load(g, ForNodes), [2]int{0, 0})
	})
}

func TestGateWhenCallersGo(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForLists: {1, 4, 60 * time.Second}})
		first := must(g.Enter(t.Context(), ForLists, "much"))
		let := make(chan string, 10)
		ask := func(subscription string) {
			go func() {
				p, err := g.Enter(context.Background(), ForLists, subscription)
				if err != nil {
					let <- "refused " + subscription
					return
				}
				let <- subscription
				p.Leave()
			}()
			synctest.Wait()
		}
		for range 5 {
			ask("much")
		}
		ask("a")
		ask("b")
		for _, want := range []string{"refused much", "refused much", "refused much"} {
			equal(t, "who is let in", <-let, want)
		}
		first.Leave()
		for _, want := range []string{"much", "a", "b", "much"} {
			equal(t, "who is let in", <-let, want)
		}
		synctest.Wait()
		equal(t, "the load afterwards", load(g, ForLists), [2]int{0, 0})
	})
}

// A request that moves to another class waits for a place there, and has left the former one.
func TestMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(AtOnce{ForNodes: {1, 1, time.Second}, ForNodeStore: {1, 1, time.Second}})
		_, leave, _ := enter(g, ForNodeStore)
		p := must(g.Enter(t.Context(), ForNodes, "s"))
		if err := p.Move(t.Context(), ForNodeStore); !errors.Is(err, ErrBusy) {
			t.Errorf("it is let in: %v", err)
		}
		p.Rest(func() {})
		p.Leave()
		leave()
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
