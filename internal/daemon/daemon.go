// Package daemon is the agent's event loop: events come in, and one worker carries out what
// follows, one job at a time. The loop never waits for the network or for the worker, so it feeds
// the watchdog, unless the worker makes no progress.
package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Node is the machine as the loop needs it. One goroutine at a time calls its methods.
type Node interface {
	// Reconcile makes the machine the node that its configuration describes now, and first finishes
	// what another run has left unfinished.
	Reconcile(ctx context.Context) transition.Outcome
	// Check finds out how the node is and writes it down. exhausted are the things that are no
	// longer repaired. It needs no network for what is on the machine.
	Check(ctx context.Context, exhausted []string) (Finding, error)
	// Repair puts the named things right.
	Repair(ctx context.Context, things []string) transition.Outcome
	// Leave gives the machine back.
	Leave(ctx context.Context) transition.Outcome
}

// Finding holds the result of a check.
type Finding struct {
	Left    bool   // the machine is no node any more: an operator has run unbootstrap
	Summary string // one line for systemd's status
	// Drift names what is not as it was applied, and Repair the part of it to repair.
	Drift, Repair []string
	// Reconcile tells that a repair is not enough, as when the API server has another address.
	Reconcile bool
	Every     time.Duration // the interval between checks; 0 is a minute
}

// Daemon runs the loop.
type Daemon struct {
	Node Node
	// Changed reports whether the configuration file has changed since it was asked last.
	Changed func() bool
	Hints   <-chan string // tell that a check is worth making now; nil gives none
	// Received tells that the configuration is another one now, or that the one which waits may be
	// applied, and Deleted, once, that its owner has deleted it; nil channels tell nothing.
	Received, Deleted <-chan struct{}
	// Notify speaks to systemd (sd_notify(3)); Watchdog is the interval it asks for, 0 if none.
	Notify   func(message string)
	Watchdog time.Duration
	Budget   *Budget
	// Told is called when a job of the worker begins and once it ends.
	Told func(Job)
	Log  *slog.Logger

	// progress is when the worker said last that it works, with a monotonic reading.
	progress atomic.Pointer[time.Time]
	// proving is when the worker began to wait for a proof; nil while it does not.
	proving atomic.Pointer[time.Time]
}

// Beat tells that the worker makes progress.
func (d *Daemon) Beat() {
	now := time.Now()
	d.progress.Store(&now)
}

// Proving tells, until done is called, that the node is being proved. A new configuration
// interrupts that only after a time: quick changes would keep it from ever being proved.
func (d *Daemon) Proving() (done func()) {
	now := time.Now()
	d.proving.Store(&now)
	return func() { d.proving.Store(nil) }
}

// Job is one thing that the worker does.
type Job struct {
	Kind JobKind
	// Things are those that are repaired, or of a check those that no longer are.
	Things []string
	Ended  bool
	Err    error // why the job has failed, once it has ended
}

// JobKind names a job of the worker.
type JobKind string

// The jobs.
const (
	Reconcile JobKind = "reconcile"
	Check     JobKind = "check"
	Repair    JobKind = "repair"
	Leave     JobKind = "leave"
)

type job struct {
	Job
	cancel  context.CancelFunc
	finding Finding
	outcome transition.Outcome
}

type loop struct {
	*Daemon
	running *job // nil while the worker rests
	done    chan *job
	// What is to be done next, the most urgent first.
	wantLeave, wantReconcile, wantCheck bool
	wantRepair                          []string
	// retry brings the next reconciliation or try to leave, next the next check; nil for none.
	// hinted means that a hint brought that forward, which a check that runs may not have seen.
	retry, next <-chan time.Time
	hinted      bool
	// swarm is the pause after the last hint, which was at swarmed.
	swarm   time.Duration
	swarmed time.Time
	// patience ends when a proof is interrupted for a new configuration; nil when none waits.
	patience <-chan time.Time
	// isDeleted means that the machine is to be given back.
	isDeleted bool
	// The pauses after a reconciliation that failed, between those that checks ask for, and after a
	// repair that failed.
	failing, asking, mending wait.Backoff
	// mendAfter is when the next repair may be tried, whatever a hint brings forward.
	mendAfter time.Time
	// end is why the loop ends; nil while it goes on.
	end *transition.Outcome
	// The status line: the last check's summary, why the configuration is not in force, and the line
	// that systemd has.
	summary, trouble, told string
}

// Run works until ctx ends, which is transition.Done, or the machine is no node any more: Left,
// Deleted or Replaced. READY is sent at once.
func (d *Daemon) Run(ctx context.Context) transition.Outcome {
	again := wait.Backoff{Base: retryFirst, Max: maxRetry}
	l := &loop{Daemon: d, done: make(chan *job, 1), wantReconcile: true,
		failing: again, asking: again, mending: again}
	poll := time.Tick(pollEvery)
	var feed <-chan time.Time
	if d.Watchdog > 0 {
		feed = time.Tick(d.Watchdog / feeds)
	}
	d.Beat()
	d.Notify("READY=1")
	for l.end == nil {
		l.start(ctx)
		select {
		case <-ctx.Done():
			l.stop()
			return transition.Outcome{Kind: transition.Done}
		case j := <-l.done:
			l.ended(ctx, j)
		case <-poll:
			l.poll()
		case <-l.Received:
			l.poll()
			if l.retry != nil && !l.isDeleted { // what waits may go on
				l.wantReconcile, l.retry = true, nil
			}
		case <-l.Deleted:
			l.deleted()
		case <-l.retry:
			l.retry = nil
			l.wantLeave, l.wantReconcile = l.isDeleted, !l.isDeleted
		case <-l.patience:
			l.running.cancel()
		case <-l.next:
			l.hinted, l.wantCheck = false, true
		case hint, ok := <-l.Hints:
			l.hint(hint, ok)
		case <-feed:
			l.feed()
		}
	}
	return *l.end
}

// feed tells systemd that the daemon works: the loop runs, and its worker rests or makes progress.
func (l *loop) feed() {
	since := time.Since(*l.progress.Load())
	if l.running != nil && since > stall {
		l.Log.Error("the worker makes no progress", "job", l.running.Kind, "for",
			since.Round(time.Second))
		return
	}
	l.Notify("WATCHDOG=1")
}

func (l *loop) start(ctx context.Context) {
	j, limit := &job{}, time.Duration(0)
	switch {
	case l.running != nil:
		return
	case l.wantLeave:
		l.wantLeave, j.Kind = false, Leave
	case l.isDeleted: // nothing else is of use
		return
	case l.wantReconcile:
		l.wantReconcile, j.Kind = false, Reconcile
	case len(l.wantRepair) > 0:
		j.Kind, j.Things, limit = Repair, l.wantRepair, repairLimit
		l.wantRepair = nil
	case l.wantCheck:
		l.wantCheck = false
		j.Kind, j.Things, limit = Check, l.Budget.Exhausted(), checkLimit
	default:
		return
	}
	if limit > 0 {
		ctx, j.cancel = context.WithTimeout(ctx, limit)
	} else {
		ctx, j.cancel = context.WithCancel(ctx)
	}
	l.running = j
	l.Beat()
	l.Told(j.Job)
	go func() {
		l.work(ctx, j)
		l.done <- j
	}()
}

func (l *loop) work(ctx context.Context, j *job) {
	switch j.Kind {
	case Reconcile:
		j.outcome = l.Node.Reconcile(ctx)
	case Repair:
		j.outcome = l.Node.Repair(ctx, j.Things)
	case Leave:
		j.outcome = l.Node.Leave(ctx)
	case Check:
		j.finding, j.outcome.Err = l.Node.Check(ctx, j.Things)
	}
	j.Ended, j.Err = true, j.outcome.Err
}

// stop ends the loop: the worker stops between two changes, and the next start goes on from there.
func (l *loop) stop() {
	l.Notify("STOPPING=1")
	if l.running == nil {
		return
	}
	defer l.running.cancel()
	select {
	case <-l.done:
	case <-time.After(stopLimit):
		l.Log.Error("the worker does not stop", "job", l.running.Kind)
	}
}

func (l *loop) poll() {
	if !l.Changed() || l.isDeleted {
		return
	}
	l.Log.Info("the configuration has changed")
	l.failing.Reset()
	l.asking.Reset()
	l.wantReconcile, l.retry = true, nil
	l.interrupt()
}

// interrupt ends a reconciliation of the former configuration, but for a proof within proofLimit.
func (l *loop) interrupt() {
	if l.running == nil || l.running.Kind != Reconcile || l.patience != nil {
		return
	}
	began := l.proving.Load()
	if began == nil {
		l.running.cancel()
		return
	}
	rest := max(proofLimit-time.Since(*began), 0)
	l.Log.Info("the new configuration waits until the node has proved to be healthy", "at most", rest)
	l.patience = time.After(rest)
}

// deleted has the machine given back. Whatever the worker does is interrupted: it is of no use.
func (l *loop) deleted() {
	l.Log.Warn("the owner of this node's configuration has deleted it; giving the machine back")
	l.isDeleted, l.wantLeave, l.retry = true, true, nil
	if l.running != nil {
		l.running.cancel()
	}
}

func (l *loop) hint(what string, ok bool) {
	if !ok {
		l.Hints = nil
		return
	}
	if l.hinted { // a check that comes will see it
		return
	}
	l.Log.Debug("checking early", "because", what)
	if l.swarm = min(2*l.swarm, maxHint); time.Since(l.swarmed) > checkEvery {
		l.swarm = hintPause
	}
	l.hinted, l.swarmed = true, time.Now()
	l.next = time.After(l.swarm)
}

func (l *loop) tell() {
	text := l.summary
	if l.trouble != "" {
		text = strings.TrimPrefix(text+"; "+l.trouble, "; ")
	}
	if text != l.told {
		l.told = text
		l.Notify("STATUS=" + untrusted.Line(text))
	}
}

// The loop's times. Those that reach the cluster are spread, so that a thousand machines that came
// up together do not ask together.
const (
	checkEvery = time.Minute
	pollEvery  = 5 * time.Second // the configuration file
	busyPause  = 5 * time.Second
	// The pauses after failures: retryFirst doubles up to maxRetry.
	retryFirst = 5 * time.Second
	maxRetry   = transition.RetryWithin * 2 / 3 // Backoff adds up to a half
	hintPause  = time.Second                    // hints come in swarms
	maxHint    = 8 * time.Second                // while hints do not end
	// lookAgain is the longest rest before a time waited for: the clock may be set meanwhile.
	lookAgain = 10 * time.Minute
	stall     = 150 * time.Second // how long a worker may make no progress (TestNoWaitIsAStall)
	feeds     = 4                 // of the watchdog in each of its intervals
	// checkLimit bounds a check, repairLimit a repair, and stopLimit the wait for a worker that has
	// to stop: systemd waits for a minute (TimeoutStopSec).
	checkLimit  = time.Minute
	repairLimit = 20 * time.Minute
	stopLimit   = 45 * time.Second
	proofLimit  = 5 * time.Minute // limits the time of a proof that a new configuration waits for
)
