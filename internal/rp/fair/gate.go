package fair

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Class are requests that share places.
type Class int

// The classes, in the order in which they are let in. ForNodes is what nodes ask about themselves;
// the others are of people and their programs.
const (
	ForNodes Class = iota
	ForReads
	ForLists
	ForWrites
	classes
)

// String is the name of a class in metrics and messages.
func (c Class) String() string { return [classes]string{"nodes", "reads", "lists", "writes"}[c] }

// Classes are all of them.
func Classes() []Class { return []Class{ForNodes, ForReads, ForLists, ForWrites} }

// Places are how many requests of a class are worked on at once, how many wait, and for how long.
// Without places there is no limit.
type Places struct {
	InFlight int `json:"inFlight"`
	Queue    int `json:"queue"`
	// Seconds is how long a request waits.
	Seconds int `json:"seconds"`
}

// AtOnce are the places of each class.
type AtOnce struct {
	Nodes  Places `json:"nodes"`
	Reads  Places `json:"reads"`
	Lists  Places `json:"lists"`
	Writes Places `json:"writes"`
}

// ErrBusy is a request for which there was no place.
var ErrBusy = errors.New("too many requests are being answered")

// Gate lets requests in, so many of each class at once. While nodes wait, only one request of each
// other class is worked on.
type Gate struct {
	mu    sync.Mutex
	lines [classes]line
}

type line struct {
	places Places
	taken  int
	queue  list.List // of chan struct{}, closed when there is a place
}

// NewGate makes a gate that nobody has gone through.
func NewGate(a AtOnce) *Gate {
	g := &Gate{}
	for i, p := range []Places{a.Nodes, a.Reads, a.Lists, a.Writes} {
		g.lines[i].places = p
	}
	return g
}

// Place is that of a request that was let in.
type Place struct {
	gate  *Gate
	class Class
}

// Enter waits for a place: ErrBusy if too many wait already or it takes too long.
func (g *Gate) Enter(ctx context.Context, c Class) (*Place, error) {
	if g == nil {
		return nil, nil
	}
	p := &Place{g, c}
	g.mu.Lock()
	l := &g.lines[c]
	if l.queue.Len() == 0 && g.admits(c) {
		l.taken++
		g.mu.Unlock()
		return p, nil
	}
	if l.queue.Len() >= l.places.Queue {
		g.mu.Unlock()
		return nil, ErrBusy
	}
	turn := make(chan struct{})
	waiting := l.queue.PushBack(turn)
	g.mu.Unlock()
	timer := time.NewTimer(time.Duration(l.places.Seconds) * time.Second)
	defer timer.Stop()
	err := ErrBusy
	select {
	case <-turn:
		return p, nil
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-turn: // in the last moment
		return p, nil
	default:
	}
	l.queue.Remove(waiting)
	g.letIn() // others may have waited for this one
	return nil, err
}

// admits reports whether there is a place in a class.
func (g *Gate) admits(c Class) bool {
	l := &g.lines[c]
	if l.places.InFlight == 0 {
		return true
	}
	return l.taken < l.places.InFlight &&
		(c == ForNodes || l.taken == 0 || g.lines[ForNodes].queue.Len() == 0)
}

// letIn gives free places to who waits, nodes first.
func (g *Gate) letIn() {
	for c := range classes {
		l := &g.lines[c]
		for first := l.queue.Front(); first != nil && g.admits(c); first = l.queue.Front() {
			l.taken++
			close(l.queue.Remove(first).(chan struct{}))
		}
	}
}

// Leave gives the place back.
func (p *Place) Leave() {
	if p == nil {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.gate.lines[p.class].taken--
	p.gate.letIn()
}

// Rest gives the place to others while a request waits for something: it does not count then. After
// that it goes on at once, whatever the number of others, because what has begun is to be finished.
func (p *Place) Rest(wait func()) {
	if p == nil {
		wait()
		return
	}
	p.Leave()
	defer func() {
		p.gate.mu.Lock()
		defer p.gate.mu.Unlock()
		p.gate.lines[p.class].taken++
	}()
	wait()
}

// Load is how many requests of a class are worked on, and how many wait.
func (g *Gate) Load(c Class) (inFlight, waiting int) {
	if g == nil {
		return 0, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines[c].taken, g.lines[c].queue.Len()
}
