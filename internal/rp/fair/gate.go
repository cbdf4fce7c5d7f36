package fair

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// Class is a class of requests that share places.
type Class int

// The classes, in the order in which they are let in. ForNodes are nodes' requests about themselves
// that are answered from memory, ForNodeStore those that use the store: polls keep their places
// when that is slow. The others are for people and their programs.
const (
	ForNodes Class = iota
	ForNodeStore
	ForReads
	ForLists
	ForWrites
	classes
)

// String returns the name of a class in metrics and messages.
func (c Class) String() string {
	return [classes]string{"nodes", "nodeStore", "reads", "lists", "writes"}[c]
}

// Classes returns all of them.
func Classes() []Class { return []Class{ForNodes, ForNodeStore, ForReads, ForLists, ForWrites} }

// Places limits the concurrent requests of a class, the number that wait, and their wait. Without
// places there is no limit.
type Places struct {
	InFlight, Queue int
	Wait            time.Duration
}

// AtOnce holds the places of each class.
type AtOnce [classes]Places

// DefaultAtOnce returns the places for a common machine: polls have room to spare, and lists, which
// keep a processor busy for long, get half of the processors.
func DefaultAtOnce() AtOnce {
	return AtOnce{
		ForNodes:     {256, 20_000, 10 * time.Second},
		ForNodeStore: {64, 4096, 10 * time.Second},
		ForReads:     {64, 256, 5 * time.Second},
		ForLists:     {max(1, runtime.GOMAXPROCS(0)/2), 64, 5 * time.Second},
		ForWrites:    {128, 256, 5 * time.Second},
	}
}

// ErrBusy is returned if there was no place for a request.
var ErrBusy = errors.New("too many requests are being answered")

// Gate lets in a limited number of requests of each class. While nodes wait, only one request of
// each other class is let in.
type Gate struct {
	mu    sync.Mutex
	lines [classes]line
}

type line struct {
	places         Places
	taken, waiting int
	// queues holds the waiters of each subscription; turns lists the subscriptions, the next first.
	queues map[string]*list.List
	turns  []string
}

// waiter is a waiting request. It receives nil for a place, or an error.
type waiter chan error

// push returns a new last waiter of a subscription, and a function that removes it.
func (l *line) push(subscription string) (w waiter, giveUp func()) {
	queue := l.queues[subscription]
	if queue == nil {
		queue = list.New()
		l.queues[subscription], l.turns = queue, append(l.turns, subscription)
	}
	l.waiting++
	w = make(waiter, 1)
	at := queue.PushBack(w)
	return w, func() {
		queue.Remove(at)
		l.waiting--
	}
}

// pop takes the first waiter of the subscription whose turn it is.
func (l *line) pop() waiter {
	for {
		next := l.turns[0]
		queue := l.queues[next]
		l.turns = l.turns[1:]
		if queue.Len() == 0 { // all of them have given up
			delete(l.queues, next)
			continue
		}
		l.turns = append(l.turns, next)
		l.waiting--
		return queue.Remove(queue.Front()).(waiter)
	}
}

// yield refuses the last waiter of the subscription with the most waiters, if that is fairer than
// to refuse one of another.
func (l *line) yield(to string) bool {
	longest, least := (*list.List)(nil), 1
	if own := l.queues[to]; own != nil {
		least += own.Len()
	}
	for _, queue := range l.queues {
		if queue.Len() > least {
			longest, least = queue, queue.Len()
		}
	}
	if longest == nil {
		return false
	}
	l.waiting--
	longest.Remove(longest.Back()).(waiter) <- ErrBusy
	return true
}

// NewGate returns a gate with all places free.
func NewGate(a AtOnce) *Gate {
	g := &Gate{}
	for i, p := range a {
		g.lines[i] = line{places: p, queues: map[string]*list.List{}}
	}
	return g
}

// Place is the place of a request that was let in.
type Place struct {
	gate         *Gate
	class        Class
	subscription string
}

// Enter waits for a place, in turns with other subscriptions. It returns ErrBusy if too many wait
// already or the wait takes too long.
func (g *Gate) Enter(ctx context.Context, c Class, subscription string) (*Place, error) {
	if err := g.enter(ctx, c, subscription); err != nil {
		return nil, err
	}
	return &Place{g, c, subscription}, nil
}

func (g *Gate) enter(ctx context.Context, c Class, subscription string) error {
	g.mu.Lock()
	l := &g.lines[c]
	if l.waiting == 0 && g.admits(c) {
		l.taken++
		g.mu.Unlock()
		return nil
	}
	if l.waiting >= l.places.Queue && !l.yield(subscription) {
		g.mu.Unlock()
		return ErrBusy
	}
	turn, giveUp := l.push(subscription)
	g.mu.Unlock()
	err := ErrBusy
	select {
	case err := <-turn:
		return err
	case <-time.After(l.places.Wait):
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case err := <-turn: // at the last moment
		return err
	default:
	}
	giveUp()
	g.letIn() // others may have waited for this one
	return err
}

func (g *Gate) admits(c Class) bool {
	l := &g.lines[c]
	return l.places.InFlight == 0 || l.taken < l.places.InFlight &&
		(c == ForNodes || l.taken == 0 || g.lines[ForNodes].waiting == 0)
}

// letIn gives free places to waiters, nodes first.
func (g *Gate) letIn() {
	for c := range classes {
		l := &g.lines[c]
		for l.waiting > 0 && g.admits(c) {
			l.taken++
			l.pop() <- nil
		}
	}
}

// Leave gives the place back.
func (p *Place) Leave() {
	if p.class == classes {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.gate.lines[p.class].taken--
	p.gate.letIn()
}

// Move exchanges the place for one of another class, for which it waits. After an error the request
// has no place.
func (p *Place) Move(ctx context.Context, to Class) error {
	if p.class == to {
		return nil
	}
	p.Leave()
	p.class = classes
	if err := p.gate.enter(ctx, to, p.subscription); err != nil {
		return err
	}
	p.class = to
	return nil
}

// Rest frees the place while a request waits for something. Afterwards the request continues at
// once, even beyond the limit, since a request that has begun must finish.
func (p *Place) Rest(wait func()) {
	if p.class != classes {
		p.Leave()
		defer func() {
			p.gate.mu.Lock()
			defer p.gate.mu.Unlock()
			p.gate.lines[p.class].taken++
		}()
	}
	wait()
}

// Load returns the number of concurrent and of waiting requests of a class.
func (g *Gate) Load(c Class) (inFlight, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines[c].taken, g.lines[c].waiting
}
