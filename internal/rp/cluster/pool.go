package cluster

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// pool runs the tasks of all clusters of a replica. An idle cluster costs no goroutine; clusters
// with tasks take turns.
type pool struct {
	queue workqueue.TypedRateLimitingInterface[job]

	mu      sync.Mutex
	running int
	turn    []*line // those with a job and a place for it
}

const (
	// poolPlaces limits the tasks that run at once for all clusters, linePlaces those of one. While
	// more than half of the places are taken, a cluster gets a single one: clusters that stall do not
	// keep the others from theirs.
	poolPlaces, linePlaces = 512, 8
)

// job is a task of a cluster; it is queued once, however often it is added.
type job struct {
	line *line
	task task
}

// newPool returns a pool that runs until it is shut down. first and last are the pauses before a
// failed job is retried.
func newPool(first, last time.Duration) *pool {
	p := &pool{queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[job](first, last))}
	go p.run()
	return p
}

func (p *pool) run() {
	for {
		j, ended := p.queue.Get()
		if ended {
			return
		}
		p.mu.Lock()
		if j.line.closed {
			p.drop(j)
		} else {
			j.line.ready = append(j.line.ready, j)
			p.enlist(j.line)
			p.next()
		}
		p.mu.Unlock()
	}
}

// drop discards a job; the caller holds the lock, as for the functions below.
func (p *pool) drop(j job) {
	p.queue.Forget(j)
	p.queue.Done(j)
}

// enlist adds a line to the turns if it has a job and a place for it.
func (p *pool) enlist(l *line) {
	places := linePlaces
	if p.running > poolPlaces/2 {
		places = 1
	}
	if !l.listed && len(l.ready) > 0 && l.running < places {
		l.listed, p.turn = true, append(p.turn, l)
	}
}

// next starts as many jobs as there are places, one of each line in turn.
func (p *pool) next() {
	for p.running < poolPlaces && len(p.turn) > 0 {
		l := p.turn[0]
		p.turn, l.listed = p.turn[1:], false
		if len(l.ready) == 0 { // it was closed
			continue
		}
		j := l.ready[0]
		l.ready = l.ready[1:]
		l.running++
		p.running++
		l.work.Go(func() {
			l.do(j.task)
			p.queue.Done(j)
			p.mu.Lock()
			defer p.mu.Unlock()
			l.running--
			p.running--
			p.enlist(l)
			p.next()
		})
		p.enlist(l)
	}
}

// line holds the tasks of one cluster in a pool.
type line struct {
	pool *pool
	do   func(task)
	work sync.WaitGroup
	// Guarded by pool.mu.
	ready          []job
	running        int
	listed, closed bool
}

// Add queues a task for now, AddAfter for later, and AddRateLimited after a pause that grows until
// Forget.
func (l *line) Add(t task)                       { l.pool.queue.Add(job{l, t}) }
func (l *line) AddAfter(t task, d time.Duration) { l.pool.queue.AddAfter(job{l, t}, d) }
func (l *line) AddRateLimited(t task)            { l.pool.queue.AddRateLimited(job{l, t}) }
func (l *line) Forget(t task)                    { l.pool.queue.Forget(job{l, t}) }

// close discards the queued tasks, and waits until the running ones have ended. Those that wait for
// their time keep the line, but not the worker that do belongs to.
func (l *line) close() {
	l.pool.mu.Lock()
	l.closed = true
	for _, j := range l.ready {
		l.pool.drop(j)
	}
	l.ready = nil
	l.pool.mu.Unlock()
	l.work.Wait()
	l.do = nil
}
