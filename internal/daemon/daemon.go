// Package daemon is the agent's event loop: it receives events, and one worker carries out the
// resulting jobs, one at a time. The loop never waits for the network or for the worker, so it
// feeds the watchdog, unless the worker makes no progress.
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

// Node is the part of the machine that the loop needs. Its methods are never called concurrently.
type Node interface {
	// Reconcile makes the machine the node in its current configuration, after it finishes the
	// transition that another run left unfinished.
	Reconcile(ctx context.Context) transition.Outcome
	// Check determines the node's status and records it. exhausted are the things that are no longer
	// repaired. It checks the machine itself without the network.
	Check(ctx context.Context, exhausted []string) (Finding, error)
	Repair(ctx context.Context, things []string) transition.Outcome
	Leave(ctx context.Context) transition.Outcome // gives the machine back
}

// Finding holds the result of a check.
type Finding struct {
	Left      bool          // the machine is no longer a node: an operator ran unbootstrap
	Summary   string        // one line for systemd's status
	Drift     []string      // the things that differ from the applied state
	Repair    []string      // those to repair
	Reconcile bool          // a repair is not enough, as when the API server has a new address
	Every     time.Duration // the interval between checks; 0 is a minute
}

// Daemon runs the loop.
type Daemon struct {
	Node    Node
	Changed func() bool   // whether the configuration file has changed since the last call
	Hints   <-chan string // requests early checks; may be nil
	// Received signals a new configuration, or that the waiting one may be applied. Deleted signals,
	// once, that its owner has deleted it. Both may be nil.
	Received, Deleted <-chan struct{}
	Notify            func(message string) // sends to systemd (sd_notify(3))
	Watchdog          time.Duration        // systemd's watchdog interval, 0 if none
	Budget            *Budget
	Told              func(Job) // called when a job of the worker begins and when it ends
	Log               *slog.Logger

	progress atomic.Pointer[time.Time] // the worker's last progress, with a monotonic reading
	proving  atomic.Pointer[time.Time] // the begin of its wait for a proof; nil while it does not wait
}

// Beat records that the worker makes progress.
func (d *Daemon) Beat() { d.progress.Store(new(time.Now())) }

// Proving marks the node as being proved, until done is called. A new configuration interrupts the
// proof only after a while: otherwise frequent changes could keep the node from ever being proved.
func (d *Daemon) Proving() (done func()) {
	d.proving.Store(new(time.Now()))
	return func() { d.proving.Store(nil) }
}

// Job is one job of the worker.
type Job struct {
	Kind   string   // Reconcile, Check, Repair or Leave
	Things []string // to repair; in a check, those no longer repaired
	Ended  bool
	Err    error // the error of the job, once it has ended
}

// The kinds of jobs.
const Reconcile, Check, Repair, Leave = "reconcile", "check", "repair", "leave"

type job struct {
	Job
	cancel  context.CancelFunc
	finding Finding
	outcome transition.Outcome
}

type loop struct {
	*Daemon
	running *job // nil while the worker is idle
	done    chan *job
	// The next jobs, the most urgent first.
	wantLeave, wantReconcile, wantCheck bool
	wantRepair                          []string
	// retry triggers the next reconciliation or attempt to leave, next the next check; nil for none.
	// hinted is set if a hint brought that forward; a check that runs now may have missed its cause.
	retry, next <-chan time.Time
	hinted      bool
	swarm       time.Duration    // the pause after the last hint
	swarmed     time.Time        // the time of the last hint
	patience    <-chan time.Time // ends a proof for a new configuration; nil if none waits
	unfit       <-chan time.Time // ends the pause after a refusal; nil if there was none
	isDeleted   bool             // the machine is to be given back
	// The pauses after a failed reconciliation, between reconciliations that checks request, and after
	// a failed repair.
	failing, asking, mending wait.Backoff
	mendAfter                time.Time           // of the next repair, at the earliest
	end                      *transition.Outcome // the reason why the loop ends; nil while it runs
	// The status line: the last check's summary, the reason why the configuration is not in force, and
	// the line last sent to systemd.
	summary, trouble, told string
}

// Run works until ctx ends, with transition.Done, or until the machine is no longer a node, with
// Left, Deleted or Replaced. It sends READY at once.
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
			if l.retry != nil && !l.isDeleted { // a waiting change may be able to continue
				l.wantReconcile, l.retry = true, nil
			}
		case <-l.Deleted:
			l.deleted()
		case <-l.retry:
			l.retry = nil
			l.wantLeave, l.wantReconcile = l.isDeleted, !l.isDeleted
		case <-l.unfit:
			l.wantReconcile = true
		case <-l.patience:
			l.running.cancel()
		case <-l.next:
			l.hinted, l.wantCheck = false, true
		case hint := <-l.Hints:
			l.hint(hint)
		case <-feed:
			l.feed()
		}
	}
	return *l.end
}

// feed feeds systemd's watchdog: the loop runs, and its worker is idle or makes progress.
func (l *loop) feed() {
	if since := time.Since(*l.progress.Load()); l.running != nil && since > stall {
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
	case l.isDeleted: // nothing else matters
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

// stop ends the loop: the worker stops between two changes, and the next start continues there.
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

// interrupt ends a reconciliation of the old configuration, except for a proof within proofLimit.
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

// deleted gives the machine back. It interrupts the worker, whose job no longer matters.
func (l *loop) deleted() {
	l.Log.Warn("the owner of this node's configuration has deleted it; giving the machine back")
	l.isDeleted, l.wantLeave, l.retry = true, true, nil
	if l.running != nil {
		l.running.cancel()
	}
}

func (l *loop) hint(what string) {
	if l.hinted { // the scheduled check will see it
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

// The intervals of the loop. Those that cause requests to the cluster are spread, so that a
// thousand machines that started together do not send them together.
const (
	checkEvery  = time.Minute
	pollEvery   = 5 * time.Second // the configuration file
	busyPause   = 5 * time.Second
	retryFirst  = 5 * time.Second                // the first pause after a failure, which doubles
	maxRetry    = transition.RetryWithin * 2 / 3 // Backoff adds up to a half
	hintPause   = time.Second                    // hints come in swarms
	maxHint     = 8 * time.Second                // while hints keep coming
	lookAgain   = 10 * time.Minute               // max pause: the clock may be set meanwhile
	stall       = 150 * time.Second              // max without progress (TestNoWaitIsAStall)
	feeds       = 4                              // the number of feeds in an interval of the watchdog
	checkLimit  = time.Minute
	repairLimit = 20 * time.Minute
	stopLimit   = 45 * time.Second // of a stopping worker; systemd waits for a minute (TimeoutStopSec)
	proofLimit  = 5 * time.Minute  // max time for which a new configuration waits for a proof
)
